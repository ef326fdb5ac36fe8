"""Locks a student's machine against its server: what a server sends stays data. The shift's process starts here, and the worker locks itself too.

Prefect's client turns some answers into objects. A state may name a result to fetch, a storage block to fetch it with,
and a serializer, by default pickle: whoever answers for the server could so run what they like, although the flow is
pinned. Shifts have no results, so all of that is off. Redirects, too: the worker talks to its class server only.
"""

import io
import runpy
import signal
import sys
from typing import Any, NoReturn

import prefect.client.base
import prefect.results
import prefect.serializers
import websockets.asyncio.client
from prefect._internal.schemas import validators
from prefect.blocks.core import Block

from deployments.student.patience import be_patient

DOORS: tuple[tuple[Any, str], ...] = (
    # Modules and callables by name: reading a state alone would import them.
    (prefect.serializers, "from_qualified_name"),
    (validators, "from_qualified_name"),
    (prefect.serializers.PickleSerializer, "loads"),
    (prefect.serializers.JSONSerializer, "loads"),
    (prefect.results.ResultStore, "_from_metadata"),
    (Block, "_from_block_document"),
)


def lock() -> None:
    """Shut the doors in this process, for good."""
    for owner, name in DOORS:
        getattr(owner, name)  # another Prefect may have moved it: then nothing shall run
        setattr(owner, name, _refuse)
    for client in (prefect.client.base.PrefectHttpxAsyncClient, prefect.client.base.PrefectHttpxSyncClient):
        client.follow_redirects = property(lambda self: False, lambda self, wanted: None)  # ty: ignore[invalid-assignment]
    websockets.asyncio.client.MAX_REDIRECTS = 1  # the first answer that redirects is an error


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    # A ValueError as well: data that Prefect can't read as such a result then stays what it is.
    raise io.UnsupportedOperation("refused: what a server sends becomes no object, file or import on this machine")


def finish_first() -> None:
    """On Windows, Ctrl-Break doesn't end this process: Prefect's worker passes on every one that it gets, and the unit at hand is
    to be finished. The worker says by a file that the shift shall end, and a run that is cancelled is ended with its whole job.
    """
    if sys.platform == "win32":
        signal.signal(signal.SIGBREAK, signal.SIG_IGN)


if __name__ == "__main__":
    finish_first()
    lock()
    be_patient()
    runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)
