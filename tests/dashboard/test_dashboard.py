"""The class page as streamlit's own test runs it: empty, with one machine, with five hundred, without a database."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import streamlit as st
from crowd import SECRETS, fill
from PIL import Image
from poll import wait_until
from streamlit.testing.v1 import AppTest

from deployments.dashboard import charts
from deployments.dashboard.panels import plain
from deployments.dashboard.serving import command
from deployments.local.notes import Illness, Notes, identity
from deployments.local.processes import free_port, tree_of
from gan_core.scheduler.outlook import clock
from gan_core.settings import settings
from gan_core.store.coordinator import runs
from gan_core.store.viewers import watching

PANELS = ["Samples", "What is slowing us down", "What happened", "Curves", "Leaderboard", "Machines"]


@pytest.fixture
def page(database):
    """Opens the page on this test's database."""
    st.cache_data.clear()

    def script(url: str) -> None:
        from deployments.dashboard.panels import show

        show(url)

    def opened(url: str = database) -> AppTest:
        return AppTest.from_function(script, kwargs={"url": url}, default_timeout=30).run()

    return opened


def test_an_ill_part_of_the_class_is_named_with_its_log_but_not_its_folder(page):
    illness = Illness(
        part="instructor", since=datetime.now(UTC), ends=4, log=str(settings().home / "logs" / "instructor.log")
    )
    settings().home.mkdir(parents=True)
    Notes(owner=identity(os.getpid()), ill=[illness]).write(settings().home)
    (said,) = [warning.value.replace("\\", "") for warning in page().warning]
    assert re.fullmatch(r"instructor is ill since [\d:]+: it has ended 4 times, .* Its log: logs/instructor.log", said)


def grid() -> bytes:
    drawn = io.BytesIO()
    Image.new("L", (64, 64), 200).save(drawn, "PNG")
    return drawn.getvalue()


def texts(app: AppTest) -> str:
    """Everything that a visitor reads."""
    tables = [frame.value.to_string() for frame in app.dataframe]
    kinds = (app.title, app.subheader, app.markdown, app.info, app.error, app.caption)
    words = [element.value for kind in kinds for element in kind]
    return "\n".join([*words, *(f"{m.label}: {m.value}" for m in app.metric), *tables])


def charts_of(app: AppTest) -> list[str]:
    return [json.dumps(json.loads(element.proto.spec)) for element in app.get("vega_lite_chart")]


def test_an_empty_class_says_what_will_be_here(page):
    app = page()
    assert not app.exception
    said = texts(app)
    assert "No training yet. Its samples, curves and speed appear here" in said
    assert "No students yet." in said
    assert "No machine has joined yet." in said


def test_a_class_without_gpus_has_no_memory_of_theirs(page, connection, tiny):
    fill(connection, 2, 30, tiny)
    connection.execute("UPDATE classgan.workers SET device = 'cpu'")
    metrics = {m.label: m.value for m in page().metric}
    assert metrics["GPUs"] == "0"
    assert "GPU memory" not in metrics


def test_a_training_of_one_machine_fills_every_panel(page, connection, tiny):
    fill(connection, 1, 30, tiny.changed(iterations=60), png=grid())
    app = page()
    assert not app.exception
    assert [heading.value for heading in app.subheader] == ["faces: running", *PANELS]
    metrics = {m.label: m.value for m in app.metric}
    assert metrics["iteration"] == "30 of 60"
    assert metrics["images seen"] == "1,440"
    assert metrics["machines online"] == "1"
    assert metrics["GPUs"] == "1"
    assert metrics["GPU memory"] == "15 GB"
    assert metrics["CPU cores"] == "8"
    assert metrics["time left"] != "–"
    assert metrics["D right on real"] == "77%"
    board, machines = (frame.value for frame in app.dataframe)
    assert list(board["name"]) == ["Ada Lovelace"]
    assert list(board["images"]) == [30 * 16]
    assert list(machines["machine"]) == ["Ada Lovelace (laptop)"]
    assert list(machines["device"]) == ["Tesla T4"]
    assert list(machines["how it is"]) == ["ready, waits for units"]
    assert len(charts_of(app)) == 4
    assert "waiting for quorum: 0 of 48 images" in texts(app).replace("\\", "")
    assert "Ada Lovelace (laptop) lost unit 3" in texts(app).replace("\\", "")


def test_a_training_that_is_over_has_the_time_that_it_trained_and_its_end(page, connection, tiny):
    training = fill(connection, 1, 30, tiny.changed(iterations=30))
    connection.execute(
        "UPDATE classgan.trainings SET created_at = now() - interval '3 days' WHERE id = %s", (training,)
    )
    runs.begin(connection, training, tiny.model_dump(mode="json"))
    connection.execute(
        "UPDATE classgan.runs SET first_iteration = 0, started_at = now() - interval '2 minutes'"  # a minute of preparation
    )
    assert {m.label: m.value for m in page().metric}["time of training"].startswith("1 min")
    connection.execute("UPDATE classgan.trainings SET state = 'succeeded' WHERE id = %s", (training,))
    connection.execute(
        "UPDATE classgan.runs SET ended_at = now() - interval '2 days', started_at = now() - interval '3 days'"
    )
    connection.execute(
        "UPDATE classgan.iterations SET opened_at = (SELECT ended_at FROM classgan.runs) - interval '16 s' WHERE number = 0"
    )
    st.cache_data.clear()
    metrics = {m.label: m.value for m in page().metric}
    assert metrics["time of training"] == "16 s"
    ((ended,),) = connection.execute("SELECT ended_at FROM classgan.runs").fetchall()
    assert metrics["ended"] == clock(ended)
    assert not {"time left", "images/s", "computing"} & metrics.keys()


def test_a_training_that_waits_has_neither_speed_nor_time_left(page, connection, tiny):
    training = fill(connection, 1, 30, tiny)
    connection.execute("UPDATE classgan.trainings SET state = 'paused' WHERE id = %s", (training,))
    assert not {"time left", "images/s", "computing", "ended"} & {m.label for m in page().metric}


def test_the_slider_goes_back_through_the_samples(page, connection, tiny):
    training = fill(connection, 1, 30, tiny, png=grid())
    app = page()
    assert app.image[0].proto.imgs[0].caption.startswith("iteration 27;")
    assert not app.select_slider  # it would stay where it was while newer grids come
    app.toggle[0].set_value(False).run()
    app.select_slider[0].set_value(3).run()
    assert app.image[0].proto.imgs[0].caption.startswith("iteration 3;")
    assert not app.exception
    assert watching.sample(connection, training, 3) == grid()


@pytest.mark.slow
def test_five_hundred_machines_and_a_long_history_fit_on_the_page(page, connection, tiny):
    fill(connection, 500, 3_000, tiny.changed(iterations=6_000), answers_for=3)
    app = page()
    assert not app.exception
    board, machines = (frame.value for frame in app.dataframe)
    assert len(board) == len(machines) == 500
    assert {m.label: m.value for m in app.metric}["online"] == "400 of 500"
    assert all(len(chart) < 400_000 for chart in charts_of(app))  # a few hundred points, not three thousand
    app.selectbox[0].set_value("2 s").run()
    app.slider[0].set_value(0.0).run()
    app.selectbox[2].set_value("images seen").run()
    assert not app.exception


def test_nobody_reads_a_secret_a_login_or_a_reason_that_is_not_theirs(page, connection, tiny):
    fill(connection, 10, 30, tiny, png=grid())
    app = page()
    said = texts(app) + "".join(charts_of(app))
    assert not [secret for secret in SECRETS if secret in said.replace("\\", "")]
    assert "suspended; the instructor knows why" in said
    assert "No space left on device" in said


def test_a_students_words_stay_words():
    assert plain("![x](http://evil.example/a.png) :red[hi] $x$ <b>") == (
        r"\!\[x\]\(http\:\/\/evil\.example\/a\.png\) \:red\[hi\] \$x\$ \<b\>"
    )
    assert plain("Next: `classgan resume a_b`") == r"Next\: `classgan resume a_b`"
    assert plain("one ` too many") == r"one \` too many"


def test_a_database_that_is_away_is_said_without_its_address(page):
    app = page("postgresql://somebody:TOP-SECRET@127.0.0.1:1/classgan")
    assert not app.exception
    assert "The database doesn't answer. Machines wait for it" in app.error[0].value
    assert not [word for word in ("SECRET", "127.0.0.1", "somebody") if word in texts(app)]


def test_tables_of_another_version_are_said_with_the_next_step(page, connection):
    connection.execute("DROP SCHEMA watch CASCADE")
    app = page()
    assert not app.exception
    assert "`classgan migrate`" in app.error[0].value


def test_smoothing_keeps_the_level_and_calms_the_noise():
    import pandas as pd

    noisy = pd.Series([1.0, 3.0] * 50)
    assert list(charts.smoothed(noisy, 0.0)) == list(noisy)
    calm = charts.smoothed(noisy, 0.9)
    assert calm.iloc[-1] == pytest.approx(2.0, abs=0.1)
    assert charts.smoothed(pd.Series([5.0] * 9), 0.98).iloc[0] == 5.0  # not drawn towards zero


def test_the_page_listens_here_only_and_tells_nobody_that_it_runs():
    line = command("127.0.0.1", 8501, "127.0.0.1")
    for flag in ("--server.address=127.0.0.1", "--browser.gatherUsageStats=false", "--client.showErrorDetails=none"):
        assert flag in line
    assert Path(line[-1]).exists()


@pytest.mark.slow
def test_the_page_is_served_here_until_ctrl_c_and_leaves_nothing_behind(database, tmp_path):
    port = free_port(0)
    serving = subprocess.Popen(
        [sys.executable, "-P", "-m", "deployments.cli", "dashboard", "--port", str(port)],
        env={**os.environ, "CLASSGAN_DATABASE_URL": database},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def answer() -> bytes:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5) as reply:
            return reply.read()
        return b""

    try:
        assert wait_until(answer, 90, "the page") == b"ok"
        listening = {c.laddr.ip for p in tree_of(serving.pid) for c in p.net_connections("tcp") if c.laddr.port == port}
        assert listening == {"127.0.0.1"}
        page = tree_of(serving.pid)[-1]
        assert not [word for word in page.cmdline() if "postgresql" in word]  # others on this machine may read these
    finally:
        serving.send_signal(signal.SIGINT)
        said, complaints = serving.communicate(timeout=60)
    assert (serving.returncode, complaints) == (0, "")
    assert said == f"The class page: http://127.0.0.1:{port}   (Ctrl-C ends it)\n"
    assert not page.is_running()
