"""How Prefect is set up in a class, and how its commands are called. Measured choices."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

PREFECT = [sys.executable, "-P", "-m", "prefect"]  # -P: a module of the user's in the current folder is never imported

POOLS = {"students": "gan-student", "instructor": "process"}

HOLD = "x-classgan-hold"  # header of a poll: seconds that the class server may keep it until there is a shift
HELD = 30  # seconds that it keeps one at most: what is silent for longer, proxies cut

ENTRYPOINT = "flows.gradient_compute.gradient_compute"  # the only flow that ever runs on a student's machine

# Batches keep the recorder of task runs from falling behind.
SERVER = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",  # cut to whole seconds: 0.5 would busy-wait
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": "1209600",  # flow runs and their tasks: two weeks
    "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": "P2D",  # ten of them a task: nobody looks at older ones
    "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",  # a shift that waits for a worker isn't late
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_API_DEFAULT_LIMIT": "10000",  # rows of an answer: by itself 200, and a class has more machines
}

# Short polls make the class quick.
CLIENT = {
    "DO_NOT_TRACK": "1",  # see be_untracked
    "PYTHONUTF8": "1",  # on Windows, what goes into a pipe has an encoding without many a name's letters
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    "PREFECT_WORKER_HEARTBEAT_SECONDS": "30",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "false",
    "PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED": "false",
    "PREFECT_CLIENT_MAX_RETRIES": "20",
    "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",  # what a server says whose database is away
    "PREFECT_CLIENT_RETRY_JITTER_FACTOR": "1",  # who was refused in the same moment doesn't come back in the same one
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    "PREFECT_TASKS_DEFAULT_NO_CACHE": "true",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "classgan",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_CLI_PROMPT": "false",
}


def clean_environment() -> dict[str, str]:
    """This process's environment for a child: nothing of the user's own Prefect set-up gets in."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}


def be_untracked() -> None:
    """What a class does is nobody else's business: Prefect would tell its makers that it is used, and say so at length."""
    os.environ.setdefault("DO_NOT_TRACK", "1")


def keep_to(home: Path) -> None:
    """Let libraries keep their own files in the class's folder, not in the user's home. Call it before they are imported."""
    for name, value in own_folders(home).items():
        os.environ.setdefault(name, value)
    with suppress(OSError):  # Prefect makes its own folder, but none above it
        Path(os.environ["PREFECT_HOME"]).parent.mkdir(parents=True, exist_ok=True)


def own_folders(home: Path) -> dict[str, str]:
    """Where Prefect keeps profiles and data, and matplotlib its list of fonts."""
    return {"PREFECT_HOME": str(home.resolve() / "prefect"), "MPLCONFIGDIR": str(home.resolve() / "matplotlib")}


REACH = ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_API_SSL_CERT_FILE")  # address, login, certificate


def given_reach() -> dict[str, str]:
    """The Prefect server that this process's environment names, for programs that run beside no class: in a cluster."""
    return {name: os.environ[name] for name in REACH if os.environ.get(name)}


def job_template(kind: str) -> dict[str, Any]:
    """A pool's template: only the variables that mean something to us."""
    if kind != "process":
        return {
            "job_configuration": {"env": {}},
            "variables": {"type": "object", "properties": {}},
        }  # both are ignored there
    return {
        "job_configuration": {"command": "{{ command }}"},
        "variables": {
            "type": "object",
            "properties": {
                "command": {
                    "type": "string",
                    "default": f'"{sys.executable}" -P -m prefect.engine',
                    "description": "Starts the flow.",
                },
            },
        },
    }


def prefect_file() -> Path:
    """prefect.yaml: beside the packages in a checkout, inside ours in an installation."""
    here = Path(__file__).resolve().parent
    return next(p for p in (here.parent / "prefect.yaml", here / "prefect.yaml") if p.exists())
