"""Whatever happens while a file is written, a reader finds the old one or the new one."""

import os
import stat
import sys

import pytest
from systems import needs

from gan_core.files import move, write_private, write_whole


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
def test_a_file_that_can_not_be_finished_leaves_the_old_one(tmp_path, monkeypatch, step):
    path = tmp_path / "grades.csv"
    write_whole(path, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left") as failed:
        write_whole(path, b"new")
    assert failed.value.filename == str(path)  # the system names no file, or one that nobody knows
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("grades.csv", b"old")]


@needs("file modes")
def test_only_its_owner_reads_a_private_file(tmp_path):
    for write, mode in ((write_whole, 0o644), (write_private, 0o600)):
        path = tmp_path / "made" / write.__name__
        write(path, b"x")
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert path.read_bytes() == b"x"


@pytest.mark.parametrize(("system", "tries"), [("win32", 3), ("linux", 1)])
def test_on_windows_a_file_that_a_virus_scanner_holds_is_waited_for(tmp_path, monkeypatch, system, tries):
    (tmp_path / "new").write_bytes(b"x")
    real, asked = os.replace, []

    def held(source, target):
        asked.append(target)
        if len(asked) < 3:
            raise PermissionError(13, "The process cannot access the file because it is being used by another process")
        real(source, target)

    monkeypatch.setattr(os, "replace", held)
    monkeypatch.setattr(sys, "platform", system)
    if tries == 1:  # elsewhere a refusal is one
        with pytest.raises(PermissionError):
            move(tmp_path / "new", tmp_path / "named")
    else:
        move(tmp_path / "new", tmp_path / "named")
        assert (tmp_path / "named").read_bytes() == b"x"
    assert len(asked) == tries
