"""Who waits for work is woken when there is some, and not by each of a hundred notices of the same moment."""

import asyncio

from deployments.server.door.notices import Notices

LATEST = 60.0  # seconds: a deadline, also on a busy computer


def test_a_hundred_notices_of_one_moment_wake_twice_at_most_and_the_last_is_not_lost():
    """Each that is woken asks for work: 120 machines that give something back would be woken 120 times."""

    async def notice() -> tuple[int, int, int]:
        notices = Notices("nowhere")
        notices._tell()
        first = notices.heard
        for _ in range(99):
            notices._tell()
        last = await notices.after(first, LATEST)
        notices._tell()  # and whoever has heard of those hears of this one
        return first, last, await notices.after(last, LATEST)

    assert asyncio.run(notice()) == (1, 2, 3)


def test_a_notice_after_a_while_wakes_at_once(monkeypatch):
    async def notice() -> int:
        notices, loop = Notices("nowhere"), asyncio.get_running_loop()
        notices._tell()
        now = loop.time() + 0.3
        monkeypatch.setattr(loop, "time", lambda: now)
        notices._tell()
        return notices.heard

    assert asyncio.run(notice()) == 2
