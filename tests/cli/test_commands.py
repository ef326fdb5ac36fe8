"""The command line: every mistake is answered with a sentence and the next step, and never with a traceback."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from deployments.cli import main, output
from deployments.prefect_settings import clean_environment
from gan_core.errors import DataError
from gan_core.networks import generators
from gan_core.networks.update import initial_state
from gan_core.settings import settings


@pytest.fixture
def classgan(tmp_path, monkeypatch, capsys):
    """Runs `classgan` in an empty folder of its own; returns exit code and everything it printed, without its line breaks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("CLASSGAN_HOME", "CLASSGAN_OUTPUTS"):
        monkeypatch.delenv(name)

    def run(*arguments: str) -> tuple[int, str]:
        settings.cache_clear()
        monkeypatch.setattr(sys, "argv", ["classgan", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code or 0, " ".join((printed.out + printed.err).split())

    return run


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["demo", "--set", "batch_size=1"], "batch_size: Input should be greater than or equal to 2 (got 1)"),
        (["demo", "--set", "nonsense=3"], "nonsense: a plan has no such knob; `classgan plan` lists them"),
        (["demo", "--set", "iterations"], "is not KEY=VALUE, for example --set iterations=50"),
        (["demo", "--preset", "foo"], "There is no preset 'foo'. Choose one of: demo, dcgan, better."),
        (
            ["train-local", "--set", "data=folder:/nowhere"],
            f"There is no folder {Path('/nowhere')}. Put pictures there",
        ),
        (
            ["train-local", "--out", f"{sys.executable}/below"],  # a file: no system makes a folder there
            ". Name another file or folder",
        ),
        (["generate", "nonsense"], "There is no generator of 'nonsense'"),
        (
            ["generate", "x.safetensors"],
            "There is no file x.safetensors. A training writes its generator to outputs/NAME/generator.safetensors.",
        ),
        (["generate", sys.executable], "is no generator's file: those end in .safetensors"),
        (["generate", "x", "-o", "x.jpg"], "a grid is written as .png, single images into a folder"),
        (["generate", "hub:nonsense"], "'nonsense' is not a repository of the hub. Write OWNER/REPO"),
        (["push", "--check", "--repo", "nonsense"], "'nonsense' is not a repository of the hub"),
        (["named", "yes"], "This machine hasn't joined a class yet"),
        (["status"], "There is no class in"),
        (["export-grades"], "Start with `classgan demo`"),
        (["submit", "demo", "--name", "../evil"], "name is '../evil': a training's name has at most 50 small letters"),
        (["submit", "demo", "--name", "x" * 51], "at most 50 small letters, digits and dashes, for example xxxxx"),
        (["worker", "Bad Name"], "can't be a worker's name: use up to 31 small letters"),
        (["worker", "instructor"], "'instructor' is taken"),
        (["worker", "ada"], "No class runs in"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_answered_with_a_sentence(classgan, arguments, sentence):
    code, text = classgan(*arguments)
    assert code == 1, text
    assert sentence in text
    assert "Traceback" not in text


def test_data_that_is_not_there_shows_no_progress_of_preparing_it(monkeypatch, tmp_path, tiny):
    screen = io.StringIO()
    monkeypatch.setattr(output, "console", Console(file=screen, force_terminal=True, _environ={}))
    with pytest.raises(DataError):
        output.open_with_bar(tiny.changed(data=f"folder:{tmp_path / 'nowhere'}"), tmp_path)
    assert screen.getvalue() == ""
    output.open_with_bar(tiny, tmp_path)  # what is there and has to be resized does
    assert "preparing images" in screen.getvalue()


@pytest.mark.parametrize("device", ["cuda:9", "cuda:0,cuda:1", "banana"])
def test_a_device_that_train_local_does_not_use_is_refused(classgan, monkeypatch, device):
    monkeypatch.setenv("CLASSGAN_DEVICE", device)
    code, text = classgan("train-local")
    assert code == 1
    assert f"CLASSGAN_DEVICE is {device!r}, and train-local computes on the CPU" in text
    assert "Leave the setting out, or set it to cpu" in text


def test_nothing_is_left_in_the_home_of_who_uses_it(tmp_path):
    """Prefect makes a folder there when it is imported, and matplotlib a list of fonts, if nobody names another place."""
    home, place = tmp_path / "home", tmp_path / "class"
    home.mkdir(), place.mkdir()
    used = """
from pathlib import Path
from deployments.cli.trainings.control import reaching
from deployments.local.stack import LocalStack
from deployments.prefect_settings import keep_to
from gan_core.quality.curves import draw_curves
keep_to(Path(".classgan"))
with reaching(LocalStack(Path(".classgan"), Path("outputs"))):
    draw_curves([], [])
"""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CLASSGAN_", "PREFECT_", "MPL", "XDG_"))}
    clean |= {"HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", used], cwd=place, env=clean, check=True)
    assert list(home.iterdir()) == []
    assert (place / ".classgan" / "matplotlib").exists()


def test_images_are_drawn_as_a_grid_or_as_files(classgan, tmp_path, tiny):
    generators.save(
        tmp_path / "outputs" / "mine" / "generator.safetensors",
        generators.finished(tiny, initial_state(tiny).average, 1, 1),
    )
    assert classgan("generate", "mine", "-n", "9", "-o", "grid.png")[0] == 0
    assert classgan("generate", "outputs/mine", "-n", "3", "-o", "single")[0] == 0
    assert (tmp_path / "grid.png").read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in sorted((tmp_path / "single").iterdir())] == ["00000.png", "00001.png", "00002.png"]


@pytest.mark.slow
def test_a_training_in_this_process_leaves_generator_samples_and_timeline(classgan, tmp_path):
    knobs = {
        "generator_width": 4,
        "discriminator_width": 4,
        "batch_size": 8,
        "images_per_unit": 16,
        "quorum": 16,
        "iterations": 4,
    }
    changes = [argument for knob, value in knobs.items() for argument in ("--set", f"{knob}={value}")]
    for extra in ([], ["--plain"]):
        code, text = classgan("train-local", *changes, *extra, "--out", "here")
        assert code == 0, text
        assert "generator.safetensors, samples.png, timeline.gif → here/" in text


def test_the_plan_explains_every_knob(classgan):
    code, text = classgan("plan", "--preset", "dcgan")
    assert code == 0
    assert "celeba" in text
    assert "An iteration closes with this many images." in text


def test_settings_that_make_no_sense_are_named(tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "deployments.cli", "status"],
        cwd=tmp_path,
        env={**os.environ, "CLASSGAN_PREFECT_PORT": "99999"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "CLASSGAN_PREFECT_PORT: Input should be less than or equal to 65535 (got '99999')" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_lives_in_the_environments_folder():
    assert (Path(sys.executable).parent / "classgan").exists()


def test_what_is_made_lies_where_the_setting_says(classgan, cache, monkeypatch, tmp_path):
    """CLASSGAN_OUTPUTS moves all that commands write without being told where."""
    monkeypatch.setenv("CLASSGAN_HOME", str(cache.parent / "home of outputs"))
    monkeypatch.setenv("CLASSGAN_OUTPUTS", str(tmp_path / "elsewhere"))
    small = (
        "iterations=1",
        "batch_size=8",
        "generator_width=4",
        "discriminator_width=4",
        "images_per_unit=16",
        "quorum=48",
    )
    code, text = classgan("train-local", *(word for change in small for word in ("--set", change)))
    assert code == 0, text
    assert (tmp_path / "elsewhere" / "local" / "generator.safetensors").exists()
    assert not (tmp_path / "outputs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "not to be written"])
def test_no_command_needs_the_users_home(database, tmp_path, is_there):
    """Prefect, once imported, made a folder there or warned that it can't."""
    home = tmp_path / "home"
    if is_there:
        home.touch()  # for root, too, nothing can be written below a file
    done = subprocess.run(
        [sys.executable, "-P", "-m", "deployments.cli", "resume", "nonsense"],
        cwd=tmp_path,
        env={**clean_environment(), "HOME": str(home), "CLASSGAN_DATABASE_URL": database},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.startswith("classgan: There is no training called 'nonsense'."), done.stderr
    assert home.exists() == is_there
