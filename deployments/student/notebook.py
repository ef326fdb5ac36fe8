"""A student's machine in a notebook, such as Colab: one cell to join, one to look, one to stop."""

import atexit
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from getpass import getpass

from deployments.prefect_settings import clean_environment
from deployments.student.doctor import Doctor
from deployments.student.join import Membership
from gan_core.settings import settings
from gan_core.store import student
from gan_core.store.engine import connect
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
        # A file, not a pipe: nobody reads while no cell follows, and a full pipe would stop the work.
        self._said = tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace")  # noqa: SIM115  open as long as the machine
        with open(self._said.name, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "deployments.cli", "join", "-", *options],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**clean_environment(), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # the interrupt button is ours to hand on, once
            )
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.close()
        atexit.register(self._interrupt)

    def follow(self) -> None:
        """Show what it does, until it ends or the cell is interrupted, which stops it."""
        try:
            self._show()
        except KeyboardInterrupt:
            self.stop()

    def stop(self) -> None:
        """Let it finish the unit at hand, submit it, and end. Interrupted once more, it ends at once."""
        self._interrupt()
        try:
            self._show()
        except KeyboardInterrupt:
            self._interrupt()
            self._show()
        print("This machine has stopped.")

    def look(self) -> None:
        """Say what was counted so far, and whether it works."""
        mine = Membership(settings().home)
        invite = mine.invite()
        with connect(Doctor(invite, mine.pem).database) as connection:
            units, images, seconds = student.my_credit(connection)
        works = "works" if self._process.poll() is None else "has stopped"
        print(
            f"{invite.login}: {counted(units, 'unit')}, {counted(images, 'image')}, {seconds:,.0f} s counted. This machine {works}."
        )

    def _interrupt(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def _show(self) -> None:
        while True:
            ended = self._process.poll() is not None  # before the last look, or its last words would be lost
            print(self._said.read(), end="", flush=True)
            if ended:
                return
            time.sleep(GLANCE)
