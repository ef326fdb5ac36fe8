"""The private PostgreSQL on Windows: what is called there is called here, too, as far as Linux can."""

import subprocess
import sys

import pytest

from deployments.local import postgres
from deployments.local.postgres import Postgres


def refuse(number: int) -> None:
    """What Python does there with any signal but SIGTERM, CTRL_C_EVENT and CTRL_BREAK_EVENT."""
    raise ValueError(f"Unsupported signal: {number}")


@pytest.mark.slow
def test_on_windows_postgresql_is_stopped_in_order_by_its_own_program(tmp_path, monkeypatch):
    server, user, run = Postgres(tmp_path / "postgres"), postgres._system_user(), subprocess.run
    server.start()
    process, asked = server.process, []

    def run_as_its_user(command, **options):
        asked.append([getattr(word, "name", word) for word in command])
        return run(command, user=user, cwd=server.folder, **options)  # it won't do it for root

    try:
        with monkeypatch.context() as on_windows:
            on_windows.setattr(sys, "platform", "win32")
            on_windows.setattr(process, "send_signal", refuse)
            on_windows.setattr(subprocess, "run", run_as_its_user)
            server.stop()
    finally:
        server.stop()
    assert asked == [["pg_ctl", "stop", "--mode=fast", "--no-wait", "-D", "postgres"]]
    assert process.returncode == 0  # by itself; a killed one has another


def test_a_servers_note_of_itself_may_name_its_folder_in_any_encoding(tmp_path):
    """Its second line is a path: on Windows in the code page, which needn't be UTF-8."""
    sleeper = subprocess.Popen([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        (tmp_path / "postmaster.pid").write_bytes(f"{sleeper.pid}\n".encode() + "C:\\Users\\Zoë\n".encode("cp1252"))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("psutil.Process.name", lambda process: "postgres.exe")
            assert postgres._is_alive(tmp_path)
    finally:
        sleeper.communicate()
