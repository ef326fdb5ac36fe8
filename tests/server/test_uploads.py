"""Contributions on their way: a file never grows beyond what was announced, and the disk keeps a reserve."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from deployments.server.door import uploads
from deployments.server.door.uploads import Uploads
from deployments.server.gate.runs import Refused

PAYLOAD = 10 << 20  # bytes, as the database says
BOOT = uuid4()


class Answering:
    """A database that says of every lease how long its payload must be."""

    async def ask(self, login: str, work: object, **kind: bool) -> int:
        return PAYLOAD


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Room for one contribution beside the reserve, whatever this computer's disk has."""
    disk = SimpleNamespace(free=uploads.RESERVE + PAYLOAD + uploads.TRAIL_BYTES)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: disk)
    return disk


@pytest.fixture
def coming(disk: SimpleNamespace, tmp_path: Path) -> Uploads:
    coming = Uploads(Answering(), tmp_path / "uploads")
    coming.start()
    return coming


async def pieces(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield bytes(size)


def test_what_others_have_announced_is_counted_before_it_is_there(coming, disk):
    """Each alone has room. The second is let in once the first one's bytes are the disk's own."""

    async def announce_two() -> None:
        assert await coming.size("ada", 1, BOOT) == 0
        with pytest.raises(OSError, match=r"fewer than 2,048 MB would stay free"):
            await coming.size("grace", 2, BOOT)
        assert await coming.size("ada", 1, BOOT) == 0  # asked again, it is the same one
        disk.free += PAYLOAD + uploads.TRAIL_BYTES
        assert await coming.size("grace", 2, BOOT) == 0
        await coming.take("ada", 1, BOOT, 0, PAYLOAD, pieces(PAYLOAD))
        disk.free -= PAYLOAD
        with pytest.raises(OSError, match="would stay free"):
            await coming.size("mallory", 3, BOOT)

    asyncio.run(announce_two())


def test_whoever_else_fills_the_disk_meanwhile_ends_an_upload_before_the_reserve(coming, disk):
    """PostgreSQL writes to the same disk. What is here stays, and goes on once there is room."""

    async def filling(*sizes: int) -> AsyncIterator[bytes]:
        async for piece in pieces(*sizes):
            yield piece
            disk.free = uploads.RESERVE

    async def go_on() -> None:
        await coming.size("ada", 1, BOOT)
        with pytest.raises(OSError, match="would stay free"):
            await coming.take("ada", 1, BOOT, 0, PAYLOAD, filling(PAYLOAD // 2, PAYLOAD // 2))
        assert await coming.size("ada", 1, BOOT) == PAYLOAD // 2
        disk.free += PAYLOAD
        await coming.take("ada", 1, BOOT, PAYLOAD // 2, PAYLOAD, pieces(PAYLOAD // 2))
        assert await coming.size("ada", 1, BOOT) == PAYLOAD

    asyncio.run(go_on())


def test_nothing_is_written_of_what_is_more_than_was_announced(coming, tmp_path):
    async def send() -> None:
        await coming.size("ada", 1, BOOT)
        with pytest.raises(Refused, match="More bytes came than were announced: 100"):
            await coming.take("ada", 1, BOOT, 0, 100, pieces(80, 80))
        assert await coming.size("ada", 1, BOOT) == 80

    asyncio.run(send())
    (file,) = (tmp_path / "uploads").iterdir()
    assert file.stat().st_size == 80
