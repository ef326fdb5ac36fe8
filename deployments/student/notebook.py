"""A student's machine in a notebook, such as Colab: one cell to join, one to look, one to stop."""

import atexit
import subprocess
import sys
import tempfile
import time
from getpass import getpass
from pathlib import Path

from deployments.ctrl_c import hand_on, start_apart
from deployments.prefect_settings import clean_environment
from deployments.student.doctor import Doctor
from deployments.student.join import Membership
from gan_core.settings import settings
from gan_core.store import student
from gan_core.units import counted

GLANCE = 0.2  # seconds between looks at what the worker says


class NotebookWorker:
    """`classgan join` as a process of its own, so that the notebook stays free for other cells.

    The interrupt button stops it in good order while `follow` shows it, and so does the end of the kernel.
    """

    def __init__(self, invite: str = "", *options: str) -> None:
        """Start it.

        Args:
            invite: the line from the instructor; asked for, unseen, if left out.
            options: more words for `classgan join`, such as "--machine", "lab".
        """
        line = invite or getpass("Invite (it isn't shown): ")
        # A file, not a pipe: nobody reads while no cell follows, and a full pipe would stop the work. In a folder, because
        # Windows opens no temporary file twice; what is open still can't be deleted there.
        self._folder = tempfile.TemporaryDirectory(prefix="classgan-", ignore_cleanup_errors=True)
        path = Path(self._folder.name) / "said.txt"
        with path.open("ab") as log:
            self._process = start_apart(
                [sys.executable, "-P", "-m", "deployments.cli", "join", "-", *options],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**clean_environment(), "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"},
            )
        self._said = path.open(encoding="utf-8", errors="replace")  # open as long as the machine
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.close()
        atexit.register(hand_on, self._process)

    def follow(self) -> None:
        """Show what it does, until it ends or the cell is interrupted, which stops it."""
        try:
            self._show()
        except KeyboardInterrupt:
            self.stop()

    def stop(self) -> None:
        """Let it finish the unit at hand, submit it, and end. Interrupted once more, it ends at once."""
        hand_on(self._process)
        try:
            self._show()
        except KeyboardInterrupt:
            hand_on(self._process)
            self._show()
        print("This machine has stopped.")

    def look(self) -> None:
        """Say what was counted so far, and whether it works."""
        mine = Membership(settings().home)
        invite = mine.invite()
        with student.reach(Doctor(invite, mine.pem).home) as home:
            units, images, seconds = student.my_credit(home)
        works = "works" if self._process.poll() is None else "has stopped"
        print(
            f"{invite.login}: {counted(units, 'unit')}, {counted(images, 'image')}, {seconds:,.0f} s counted. This machine {works}."
        )

    def _show(self) -> None:
        while True:
            ended = self._process.poll() is not None  # before the last look, or its last words would be lost
            print(self._said.read(), end="", flush=True)
            if ended:
                return
            time.sleep(GLANCE)
