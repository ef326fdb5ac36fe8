"""Students' Prefect workers that wait for a shift, many in one process: `python -m bench.workers PEM`, their addresses as the first line of stdin.

Each has a websocket with heartbeats, and a poll that the class server holds. Ends when its stdin does, and says then how many
requests were refused.
"""

import asyncio
import json
import ssl
import sys
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from urllib.parse import unquote, urlsplit

import httpx

from bench.children import say
from bench.crowd import Machine, lasting
from deployments.prefect_settings import HELD


async def attend(urls: list[str], pem: str) -> Counter[int]:
    """All of them, until stdin closes; the statuses of their answers."""
    context = ssl.create_default_context(cafile=pem)
    async with AsyncExitStack() as stay, asyncio.TaskGroup() as lives:
        machines, tasks = list[Machine](), list[asyncio.Task[None]]()
        for url in urls:
            parts = urlsplit(url)
            home, login, secret = (
                f"{parts.hostname}:{parts.port}",
                unquote(parts.username or ""),
                unquote(parts.password or ""),
            )
            client = httpx.AsyncClient(base_url=f"https://{home}", auth=(login, secret), verify=context, timeout=90)
            machines.append(machine := Machine(login, await stay.enter_async_context(client), secret, HELD))
            tasks.append(lives.create_task(lasting(partial(machine.report, f"wss://{home}", context))))
            tasks.append(lives.create_task(lasting(machine.poll)))
        say("waiting")
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
    return sum((machine.answers for machine in machines), Counter())


def main(pem: str) -> None:
    answers = asyncio.run(attend(json.loads(sys.stdin.readline()), pem))
    say(sum(count for status, count in answers.items() if status >= 300))


if __name__ == "__main__":
    main(*sys.argv[1:])
