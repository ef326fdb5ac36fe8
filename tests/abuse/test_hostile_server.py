"""A student's machine and a class server that lies in every answer: nothing but the pinned flow ever runs there."""

import json
import pickle
import subprocess
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from gated import SECRETS, Gate
from hostile import BLOCK, DEPLOYMENT, NOW, Hostile, served
from killing import kill_tree
from poll import wait_until

from deployments.prefect_settings import PREFECT
from deployments.student.worker import ENTRYPOINT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

KEEP = "CLASSGAN_HOSTILE_MARK"  # a variable that only an attack sets
FINAL = {"COMPLETED", "FAILED", "CRASHED"}
OVER = FINAL | {"RUNNING"}  # the pinned flow itself then waits for a database, which it has none of here


@pytest.fixture
def attack(tmp_path: Path) -> Callable[..., Hostile]:
    """Let a worker meet a hostile server until it has answered `until`; nobody may have made the marker."""

    def against(
        poison: Callable[[Hostile, str, str, Any], Any],
        until: Callable[[Hostile], bool] = lambda server: bool(set(server.types) & OVER),
        prepare: Callable[[Hostile], None] = lambda server: None,
    ) -> Hostile:
        marker = tmp_path / "marker"
        server = Hostile(marker, lambda method, path, answer: poison(server, method, path, answer))
        prepare(server)
        environment = {
            **Gate.environment(None),  # ty: ignore
            "PREFECT_HOME": str(tmp_path / "home"),
            "PREFECT_API_URL": f"http://127.0.0.1:{server.port}/api",
            "PREFECT_API_AUTH_STRING": f"ada:{SECRETS['ada']}",
            "CLASSGAN_HOME": str(tmp_path / "classgan"),
            "PREFECT_CLIENT_MAX_RETRIES": "1",
        }
        with served(server, server.port), (tmp_path / "worker.log").open("wb") as log:
            server.worker = subprocess.Popen(
                [*PREFECT, "worker", "start", "--pool", "students", "--type", "gan-student", "--name", "ada"],
                env=environment,
                stdout=log,
                stderr=log,
                cwd=tmp_path,
            )
            try:
                wait_until(lambda: until(server) or server.worker.poll() is not None, 90, f"the attack; see {log.name}")
            finally:
                with suppress(psutil.NoSuchProcess):  # it may have ended by itself
                    kill_tree(server.worker.pid)
                server.worker.wait()
        assert not marker.exists(), (tmp_path / "worker.log").read_text(encoding="utf-8")
        return server

    return against


def same(server: Hostile, method: str, path: str, answer: Any) -> Any:
    return answer


def poison_everything(server: Hostile) -> None:
    """All that a process worker would obey: command, environment, folder, pull steps, template, path."""
    touch = f"touch '{server.marker}'"
    evil = {
        "command": touch,
        "env": {KEEP: "1", "PYTHONSTARTUP": "/x", "PREFECT__FLOW_ENTRYPOINT": "os.getcwd"},
        "working_dir": "/",
    }
    server.deployment |= {
        "pull_steps": [{"prefect.deployments.steps.run_shell_script": {"script": touch}}],
        "path": "/",
        "job_variables": evil,
    }
    server.run["job_variables"] = evil
    server.pool["base_job_template"] = {
        "job_configuration": {"command": touch, "env": {KEEP: "1"}},
        "variables": {"type": "object", "properties": {"command": {"type": "string", "default": touch}}},
    }


def test_command_environment_pull_steps_path_and_template_are_never_looked_at(attack):
    server = attack(same, prepare=poison_everything)
    assert "RUNNING" in server.types, server.states  # the pinned flow did run
    assert server.environments
    for environment in server.environments:
        assert KEEP not in environment
        assert "PYTHONSTARTUP" not in environment
        assert environment["PREFECT__FLOW_ENTRYPOINT"] == ENTRYPOINT
        assert environment["CLASSGAN_WORKER_NAME"] == "ada"


@pytest.mark.parametrize(
    "entrypoint",
    [
        "flows.train.train",
        *(pytest.param(e, marks=pytest.mark.rehearsal) for e in (f"{ENTRYPOINT} ", "evil.py:flow", None, ["x"])),
    ],
)
def test_another_entrypoint_is_refused(attack, entrypoint):
    server = attack(
        same,
        prepare=lambda server: server.deployment.update(entrypoint=entrypoint),
        until=lambda server: "CRASHED" in server.types or asks(server, f"/deployments/{DEPLOYMENT}") > 3,
    )
    assert "RUNNING" not in server.types
    assert not server.environments


def asks(server: Hostile, path: str) -> int:
    return sum(asked == path for _, asked, _ in server.asked)


class Bomb:
    """Unpickled, it makes the marker."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.marker,))


@pytest.mark.parametrize("kind", ["COMPLETED", pytest.param("FAILED", marks=pytest.mark.rehearsal)])
def test_a_state_that_names_a_pickle_to_load_stays_data(attack, tmp_path, kind):
    """Prefect's engine would fetch the result that a state names, with the serializer that it names, and unpickle it."""
    import base64

    bomb = tmp_path / "bomb"
    bomb.write_text(
        json.dumps(
            {
                "metadata": {"storage_key": str(bomb), "serializer": {"type": "pickle"}, "prefect_version": "3.9.1"},
                "result": base64.encodebytes(pickle.dumps(Bomb(tmp_path / "marker"))).decode(),
            }
        ),
        encoding="utf-8",
    )
    metadata = {"storage_key": str(bomb), "serializer": {"type": "pickle"}, "prefect_version": "3.9.1"}

    def poison(server: Hostile, method: str, path: str, answer: Any) -> Any:
        if path.endswith("/set_state") and server.types[-1] == "RUNNING":
            state = {"id": str(uuid.uuid4()), "type": kind, "name": kind.title(), "timestamp": NOW, "data": metadata}
            return {"state": state, "status": "REJECT", "details": {"type": "reject_details", "reason": "x"}}
        return answer

    server = attack(poison, until=lambda server: "RUNNING" in server.types and ended(server))
    assert "RUNNING" in server.types


def ended(server: Hostile) -> bool:
    """Whether the process that ran the shift is gone."""
    assert server.worker is not None
    alive = []
    for process in psutil.Process(server.worker.pid).children(recursive=True):
        with suppress(psutil.Error):  # it may be going now
            alive += [process] if "deployments.student.locked_process" in process.cmdline() else []
    return bool(server.environments) and not alive


def test_a_state_that_names_a_module_to_import_imports_nothing(attack, tmp_path):
    """Reading such a state alone would import the module, in the worker itself."""
    (tmp_path / "evil_module.py").write_text(
        f"open({str(tmp_path / 'marker')!r}, 'w')\ndumps = loads = print\n", encoding="utf-8"
    )

    def prepare(server: Hostile) -> None:
        server.run["state"]["data"] = {
            "storage_key": "x",
            "serializer": {"type": "pickle", "picklelib": "evil_module"},
            "prefect_version": "3.9.1",
        }

    import os

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tmp_path), before]))  # as if it were installed
    try:
        attack(
            same,
            prepare=prepare,
            until=lambda server: (
                bool(server.states) or asks(server, "/work_pools/students/get_scheduled_flow_runs") > 2
            ),
        )
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def test_storage_that_the_server_names_is_not_used(attack, tmp_path):
    folder = tmp_path / "marker"  # a folder there is as bad as a file

    def poison(server: Hostile, method: str, path: str, answer: Any) -> Any:
        if path == "/admin/storage":
            return {"default_result_storage_block_id": BLOCK}
        if path.startswith("/block_documents/"):
            schema = {"id": BLOCK, "checksum": "x", "fields": {}, "block_type_id": BLOCK, "capabilities": []}
            return {
                "id": BLOCK,
                "name": "evil",
                "data": {"basepath": str(folder)},
                "block_type_id": BLOCK,
                "block_schema_id": BLOCK,
                "block_schema": schema,
                "block_type_name": "Local File System",
                "block_document_references": {},
            }
        return answer

    server = attack(poison, until=lambda server: bool(set(server.types) & FINAL))
    assert server.types[-1] in ("FAILED", "CRASHED")
    assert "refused: what a server sends becomes no object" in (tmp_path / "worker.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param({"max_minutes": "rm -rf /", "idle_seconds": 1}, marks=pytest.mark.rehearsal),
        {"max_minutes": {"__prefect_kind": "jinja", "template": "{{ 1 }}"}, "idle_seconds": 1},
        pytest.param({"max_minutes": 1, "idle_seconds": 1, "x": "y" * 20_000_000}, marks=pytest.mark.rehearsal),
        pytest.param({"max_minutes": 1e308, "idle_seconds": -1}, marks=pytest.mark.rehearsal),
    ],
    ids=["text", "template", "huge", "out of range"],
)
def test_parameters_are_numbers_within_bounds_or_the_run_fails(attack, parameters):
    server = attack(same, prepare=lambda server: server.run.update(parameters=parameters))
    assert not {"RUNNING", "COMPLETED"} & set(server.types)
    assert {"FAILED", "CRASHED"} & set(server.types)


@pytest.mark.parametrize(
    "answer",
    [
        [{"flow_run": {"id": "no id"}}],
        *(pytest.param(a, marks=pytest.mark.rehearsal) for a in (None, {"x": 1}, "text")),
    ],
)
def test_answers_of_wrong_kinds_run_nothing(attack, answer):
    polls = "/work_pools/students/get_scheduled_flow_runs"
    server = attack(
        lambda server, method, path, honest: answer if path == polls else honest,
        until=lambda server: asks(server, polls) >= 2,
    )
    assert not server.states


def test_a_redirect_leads_nowhere(attack):
    """Neither the request nor the credential goes to another host."""
    other = Hostile(Path("/nowhere"), lambda method, path, answer: answer)
    polls = "/work_pools/students/get_scheduled_flow_runs"

    def poison(server: Hostile, method: str, path: str, honest: Any) -> Any:
        return (307, {}, {"location": f"http://127.0.0.1:{other.port}/api{path}"}) if path == polls else honest

    with served(other, other.port):
        elsewhere = f"http://127.0.0.1:{other.port}"
        server = attack(
            poison,
            until=lambda server: asks(server, polls) >= 2 and "WEBSOCKET" in [method for method, _, _ in server.asked],
            prepare=lambda server: setattr(server, "elsewhere", elsewhere),
        )
        assert asks(server, polls) >= 1
        assert "WEBSOCKET" in [method for method, _, _ in server.asked]
    assert other.asked == []
