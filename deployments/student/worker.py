"""The worker type `gan-student`: a student's machine runs one flow from the installed package, and nothing else.

Whatever a server says about commands, environments, pull steps or templates is never looked at, and what it says is
never made into objects (`locked`). Built on private parts of Prefect's runner, so the version is pinned and
tests/acceptance and tests/abuse cover every promise made here.
"""

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.abc
import httpx
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.runner._flow_run_executor import FlowRunExecutionResult, FlowRunExecutorContext
from prefect.runner._process_manager import ProcessHandle
from prefect.runner._starter_engine import EngineCommandStarter
from prefect.workers.base import BaseJobConfiguration, BaseVariables, BaseWorker, BaseWorkerResult

from deployments import shift_folders
from deployments.ctrl_c import cancel_on, endings
from deployments.prefect_settings import ENTRYPOINT, HELD, HOLD
from deployments.student.locked_process import lock
from deployments.student.patience import TRIES, be_patient
from flows.gradient_compute import BROKEN, HUNG_EXIT
from gan_core.settings import settings

COMMAND = f'"{sys.executable}" -P -m deployments.student.locked_process'  # Prefect's engine, locked
PATIENCE = 5.0  # seconds without an answer of the class server, after which it is said
DRIVER_SECONDS = 30.0  # that nvidia-smi may take
WINDOWS_FAULTS = 0xC0000000  # from here on, an exit code of Windows names a fault, such as an access violation
BREAKS = 3  # shifts that a device has ended by breaking or hanging, after which the CPU takes its place
PAUSE_AFTER_FAULT = 5.0  # seconds: what made a shift fail may pass, or was a login's end, which the server soon knows
LONGEST_PAUSE = 600.0  # seconds, after several shifts in a row whose processes were ended


class PinnedConfiguration(BaseJobConfiguration):
    """A configuration that ignores what deployment, run and pool ask for."""

    @classmethod
    async def resolve_for_flow_run(
        cls,
        flow_run: FlowRun,
        *,
        client: PrefectClient,
        work_pool: Any,
        worker_name: str,
        worker_id: Any = None,
        deployment: Any = None,
    ) -> Self:
        """The fixed configuration, if the run is a shift.

        Raises:
            PermissionError: it is something else; the run ends as crashed with this sentence.
        """
        if deployment is None and flow_run.deployment_id:
            deployment = await client.read_deployment(flow_run.deployment_id)
        asked = getattr(deployment, "entrypoint", None)
        if asked != ENTRYPOINT:
            raise PermissionError(f"refused: this machine runs only {ENTRYPOINT}, the run asks for {asked!r}")
        configuration = cls()
        configuration.prepare_for_flow_run(flow_run, deployment, None, work_pool, worker_name, worker_id=worker_id)
        return configuration


class StudentResult(BaseWorkerResult):
    """How a shift's process ended."""


class StudentWorker(BaseWorker[PinnedConfiguration, BaseVariables, StudentResult]):
    """Runs one shift on each device of this machine."""

    type = "gan-student"
    job_configuration = PinnedConfiguration
    job_configuration_variables = BaseVariables
    _display_name = "GAN student"
    _description = "Computes units of a class's GAN. Runs only the installed package's gradient-compute flow."

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        lock()
        be_patient()
        shift_folders.clear(settings().home.resolve())  # of workers that were killed
        self._devices = devices()
        kwargs |= {"limit": len(self._devices), "create_pool_if_not_found": False}  # whatever the command line says
        super().__init__(*args, **kwargs)
        self._free_devices = list(self._devices)
        self._breaks: Counter[str] = Counter()  # of each device
        self._is_away = self._is_refused = False
        self._pause_until = 0.0  # by the monotonic clock
        self._pause_after_fault = PAUSE_AFTER_FAULT

    async def start(self, *args: Any, **kwargs: Any) -> None:
        """Work until Ctrl-C, or until the login is no longer good: that has been said, and no traceback explains it."""
        mine = asyncio.current_task()
        if sys.platform == "win32" and mine is not None:
            cancel_on(endings(), mine)  # Prefect would send itself Ctrl-Break there, which ends it at once
        try:
            await super().start(*args, **kwargs)
        except Exception:
            if self._is_refused:
                raise SystemExit(1) from None
            raise

    # A server that is away is waited for; Prefect's own loop would end the worker after a few minutes.

    async def setup(self) -> None:
        await super().setup()
        self.client._client.headers[HOLD] = str(HELD)  # of polls: the class server answers them when there is a shift

    async def get_and_submit_flow_runs(self) -> list[FlowRun]:
        is_full = self._limiter is not None and not self._limiter.available_tokens
        if is_full or time.monotonic() < self._pause_until:
            return []
        return await self._while_reachable(super().get_and_submit_flow_runs, [], HELD)

    async def sync_with_backend(self) -> None:
        await self._while_reachable(super().sync_with_backend, None)

    async def _while_reachable(self, ask: Any, otherwise: Any, held: float = 0) -> Any:
        patience = PATIENCE + held
        # Prefect's client asks again by itself for a long time, and says nothing.
        impatience = asyncio.get_running_loop().call_later(patience, self._say_away, f"for {patience:.0f} s")
        try:
            answer = await ask()
        except (httpx.TransportError, httpx.HTTPStatusError) as exc:
            if isinstance(exc, httpx.HTTPStatusError) and exc.response.status_code == 401:
                if not self._is_refused:
                    self._logger.error(
                        "The class server refuses this login: it was revoked or changed, or PREFECT_API_AUTH_STRING is"
                        " wrong. The worker ends. Ask your instructor for a new invite."
                    )
                self._is_refused = True
                raise
            self._say_away(str(exc))
            return otherwise
        finally:
            impatience.cancel()
        if self._is_away:
            self._logger.warning("The class server is back.")
        self._is_away = False
        return answer

    def _say_away(self, why: str) -> None:
        if not self._is_away:
            self._logger.warning(
                "The class server does not answer (%s). A running shift goes on, and this machine goes on by itself"
                " when the class is back.",
                why,
            )
        self._is_away = True

    async def run(
        self,
        flow_run: FlowRun,
        configuration: PinnedConfiguration,
        task_status: anyio.abc.TaskStatus[int] | None = None,
    ) -> StudentResult:
        """Run one shift in a process of its own; on Ctrl-C it finishes its unit, submits it, and ends as Completed."""
        device, folder = self._free_devices.pop(0), shift_folders.make(settings().home.resolve())
        used = "cpu" if self._breaks[device] >= BREAKS else device
        try:
            result = await self._run_on(used, folder, flow_run, task_status or anyio.TASK_STATUS_IGNORED)
            await self._learn_from(flow_run, result, device)
            return result
        finally:
            self._free_devices.append(device)
            shutil.rmtree(folder, ignore_errors=True)

    async def _run_on(
        self, device: str, folder: Path, flow_run: FlowRun, task_status: anyio.abc.TaskStatus[int]
    ) -> StudentResult:
        stop_file = folder / "stop"
        # A task of its own: Ctrl-C cancels this coroutine, and must not take the shift's process along.
        shift = asyncio.ensure_future(self._execute(device, folder, stop_file, flow_run, task_status))
        try:
            result = await asyncio.shield(shift)
        except asyncio.CancelledError:
            self._logger.info(
                "Finishing the unit at hand, then stopping. Press Ctrl-C again to stop at once; the unit goes to someone else."
            )
            stop_file.touch()
            with anyio.CancelScope(shield=True):
                result = await shift
        if result is None or result.status_code is None:
            raise RuntimeError("The shift's process did not start.")
        return StudentResult(status_code=result.status_code, identifier=str(result.handle.pid))

    async def _learn_from(self, flow_run: FlowRun, result: StudentResult, device: str) -> None:
        """Pause after a shift that failed; a device that has ended several is not used any more."""
        state = None
        with suppress(httpx.HTTPError):  # asked, since a failed shift's process ends with 0, too, once Prefect knows
            state = (await self.client.read_flow_run(flow_run.id)).state
        has_failed = state is None or state.is_failed() or state.is_crashed()
        if has_failed:
            self._pause_until = time.monotonic() + self._pause_after_fault
        has_broken = result.status_code == HUNG_EXIT or (state is not None and state.name == BROKEN)
        if not has_broken and not (has_failed and was_killed(result.status_code)):
            self._pause_after_fault = PAUSE_AFTER_FAULT
            return
        self._pause_after_fault = min(LONGEST_PAUSE, 2 * self._pause_after_fault)
        self._breaks[device] += 1
        if self._breaks[device] == BREAKS and not has_broken and device in ("", "cpu"):
            self._logger.warning(
                "The system has ended %d shifts: this machine's memory is short. End other programs, or wait for a smaller training. It computes on the CPU from now on.",
                BREAKS,
            )
        elif self._breaks[device] == BREAKS:
            self._logger.warning(
                "%s has stopped working in %d shifts: this machine computes on the CPU from now on. Start it again to try the device once more.",
                device or "The device",
                BREAKS,
            )

    async def _execute(
        self,
        device: str,
        folder: Path,
        stop_file: Path,
        flow_run: FlowRun,
        task_status: anyio.abc.TaskStatus[int],
    ) -> FlowRunExecutionResult | None:
        result: FlowRunExecutionResult | None = None
        async with FlowRunExecutorContext() as context:
            starter = EngineCommandStarter(
                entrypoint=ENTRYPOINT,
                command=COMMAND,
                cwd=folder,
                control_channel=context.control_channel,
                isolate_process_group=True,
                env={
                    "CLASSGAN_STOP_FILE": str(stop_file),
                    # Relative settings mean this worker's folder, not the one that the shift runs in.
                    "CLASSGAN_HOME": str(settings().home.resolve()),
                    "CLASSGAN_DATA": str(settings().data.resolve()),
                    "CLASSGAN_DEVICE": device,
                    "CLASSGAN_WORKER_NAME": self.name if len(self._devices) == 1 else f"{self.name} {device}",
                    "PREFECT_CLIENT_MAX_RETRIES": str(TRIES),
                    "PREFECT_LOGGING_EXTRA_LOGGERS": "classgan",
                    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
                },
            )
            executor = context.create_executor(flow_run, starter, resolve_flow=_pinned_flow, propose_submitting=False)

            async def execute(*, task_status: anyio.abc.TaskStatus[ProcessHandle] = anyio.TASK_STATUS_IGNORED) -> None:
                nonlocal result
                result = await executor.submit(task_status=task_status)

            async with anyio.create_task_group() as tasks:
                handle = await tasks.start(execute)
                task_status.started(handle.pid or 0)
        return result


def was_killed(status: int) -> bool:
    """Whether a process ended by a fault or by the system, as when memory is short: not by itself, nor by a polite signal."""
    polite = (-signal.SIGTERM, -signal.SIGINT)
    return (status < 0 and status not in polite) or status >= WINDOWS_FAULTS


async def _pinned_flow(flow_run: FlowRun) -> Flow[Any, Any]:
    return load_flow_from_entrypoint(ENTRYPOINT)


def devices() -> list[str]:
    """What this machine computes on: the setting (several by comma), every CUDA device that this process may use, or "" for
    the shift's choice.

    Asked without importing torch, which would cost this process seconds and half a gigabyte.
    """
    if wanted := [name.strip() for name in settings().device.split(",") if name.strip()]:
        return list(dict.fromkeys(wanted))  # two shifts on one device would have one name
    if shutil.which("nvidia-smi") is None:
        return [""]
    listed = ""
    with suppress(OSError, subprocess.TimeoutExpired):  # a driver that hangs: the shift finds out what works
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=DRIVER_SECONDS
        ).stdout
    count = sum(line.startswith("GPU ") for line in listed.splitlines())  # a card's name may have "GPU" in it, too
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:  # which renumbers those that it names
        # As CUDA reads it: what comes after a number that it can't use is left out.
        valid = itertools.takewhile(
            lambda name: name.startswith(("GPU-", "MIG-")) or (name.isdecimal() and int(name) < count),
            map(str.strip, visible.split(",")),
        )
        count = len(set(valid))
    return [f"cuda:{i}" for i in range(count)] or [""]
