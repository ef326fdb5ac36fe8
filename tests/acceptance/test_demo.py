"""`classgan demo`, from the outside: it ends with its pictures, and leaves nothing behind however it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from poll import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SMALL = [
    "--set",
    "generator_width=8",
    "--set",
    "discriminator_width=8",
    "--set",
    "images_per_unit=125",
    "--set",
    "quorum=375",
]

ENDLESS = ["--workers", "1", "--set", "iterations=5000"]  # until something ends it


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder whose name has a space."""
    return tmp_path_factory.mktemp("my class")


def clean() -> dict[str, str]:
    """The environment of somebody who has set nothing."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("CLASSGAN_", "PREFECT_"))}


def start(place: Path, *arguments: str, ignoring_ctrl_c: bool = False) -> subprocess.Popen:
    """The demo as a script starts it: no terminal, a HOME that can't be written."""
    ignore = (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignoring_ctrl_c else None
    with (place / "log").open("w") as log:
        return subprocess.Popen(
            [Path(sys.executable).parent / "classgan", "demo", *SMALL, *arguments],
            cwd=place,
            env={**clean(), "HOME": "/proc"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=ignore,
        )


def left_behind(place: Path) -> list[str]:
    """Processes that work in this folder, or for a class in it."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            about = [process.cwd(), *process.cmdline(), process.environ().get("CLASSGAN_HOME", "")]
            if process.pid != os.getpid() and any(str(place) in text for text in about):
                found.append(" ".join(process.cmdline()))
    return found


def test_it_ends_with_pictures_and_a_figure_after_a_killed_one_and_though_port_4200_is_taken(place):
    with closing(socket.socket()) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a class that just ended leaves traces on it
        with suppress(OSError):  # somebody else has it already: just as well
            taken.bind(("127.0.0.1", 4200))
            taken.listen()
        demo = start(place, *ENDLESS)
        wait_until(
            lambda: any("--name ada" in process for process in left_behind(place)), 300, "ada's worker: a first start"
        )
        demo.kill()
        demo.wait()
        assert left_behind(place)
        demo = start(place, "--workers", "2", "--set", "iterations=3")
        assert demo.wait(500) == 0, (place / "log").read_text(encoding="utf-8")
    text = (place / "log").read_text(encoding="utf-8")
    assert "ending what a killed class left running" in text
    assert "digit distance" in text
    assert "KID" in text
    assert "127.0.0.1:4200" not in text
    name = re.search(r"Training (demo-\d+)", text).group(1)
    folder = place / "outputs" / name
    assert {p.name for p in folder.iterdir()} >= {"generator.safetensors", "timeline.gif", "samples"}
    assert str(folder / "samples" / "iteration_000003.png") in text
    assert left_behind(place) == []
    assert not (place / ".classgan" / "stack.json").exists()


@pytest.mark.rehearsal
@pytest.mark.parametrize("times", [1, 2], ids=["once", "again out of impatience"])
def test_ctrl_c_leaves_nothing_running(place, times):
    """In the middle of its training, and also when a script started it in the background, where Ctrl-C is ignored."""
    demo = start(place, *ENDLESS, ignoring_ctrl_c=times == 1)
    wait_until(lambda: " · loss" in (place / "log").read_text(encoding="utf-8"), 120, "the first iterations")
    demo.send_signal(signal.SIGINT)
    for _ in range(times - 1):
        wait_until(lambda: "Stopping" in (place / "log").read_text(encoding="utf-8"), 10, "the message")
        demo.send_signal(signal.SIGINT)
    pressed = time.monotonic()
    assert demo.wait(60) == 130
    assert time.monotonic() - pressed < 15  # the one promise about time that a person at the keyboard has
    assert left_behind(place) == []
    assert "Traceback" not in (place / "log").read_text(encoding="utf-8")
    looked = subprocess.run(
        [Path(sys.executable).parent / "classgan", "events"],
        cwd=place,
        env={**clean(), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert times > 1 or "Paused by Ctrl-C" in looked.stdout, looked.stdout + looked.stderr
