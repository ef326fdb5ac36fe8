"""Whose runs are open: the gate knows it from one look for all, and from what passes it. A class of 500 asks at the same moment."""

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine
from typing import Any
from uuid import UUID, uuid4

import pytest

from deployments.server.gate import runs
from deployments.server.gate.frames import StudentSocket
from deployments.server.gate.logins import Person
from deployments.server.gate.requests import StudentApi
from deployments.server.gate.runs import OPEN_RUNS, PAGE, Inner, Shifts
from tasks.background.shifts import SHIFT

SHIFTS = str(uuid4())  # the deployment's id


class Prefect:
    """As much of Prefect as is asked about runs; counts what it is asked."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.asked: Counter[str] = Counter()

    def add(self, kind: str, message: str = "") -> UUID:
        run = uuid4()
        self.runs[str(run)] = {"id": str(run), "deployment_id": SHIFTS}
        self.become(run, {"type": kind, "message": message})
        return run

    def become(self, run: UUID, state: dict[str, Any]) -> None:
        self.runs[str(run)] |= {"state_type": state["type"], "state": state}

    def found(self, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        ids, kinds = (wanted.get(name) or {} for name in ("id", "state"))
        return [
            run
            for run in self.runs.values()
            if run["id"] in ids.get("any_", [run["id"]])
            and run["state_type"] in kinds.get("type", {}).get("any_", [run["state_type"]])
        ]

    def answer(self, path: str, body: Any) -> Any:
        match path.removeprefix("/api").split("/")[1:]:
            case ["deployments", "name", *rest]:
                self.asked["deployments"] += 1
                return {"id": SHIFTS} if "/".join(rest) == SHIFT else None
            case ["flow_runs", "filter"]:
                self.asked["filter"] += 1
                return self.found(body["flow_runs"])[body.get("offset", 0) :][: body.get("limit", PAGE)]
            case ["flow_runs", run, "set_state"]:
                self.become(UUID(run), body["state"])
                return {"status": "ACCEPT", "state": body["state"]}
            case ["flow_runs", run]:
                return self.runs.get(run)
            case _:
                self.asked["history"] += 1
                return []

    async def __call__(self, scope, receive, send) -> None:
        given = (await receive())["body"]
        await asyncio.sleep(0.001)
        said = self.answer(scope["path"], json.loads(given) if given else None)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 404 if said is None else 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(said).encode()})


@pytest.fixture
def prefect() -> Prefect:
    return Prefect()


def in_a_class(prefect: Prefect, story: Any) -> Any:
    """The story's outcome, told what a class server that has just started knows."""

    async def told() -> Any:
        shifts = Shifts(Inner(prefect, "a:b"))
        return await story(shifts, StudentApi(Inner(prefect, "a:b"), shifts, list))

    return asyncio.run(told())


def person(login: str) -> Person:
    return Person(login, "")


def becomes(api: StudentApi, who: Person, run: UUID, kind: str) -> Coroutine[Any, Any, Any]:
    body = json.dumps({"state": {"type": kind, "message": "Taken by grace."}}).encode()
    return api.answer(who, "POST", f"/api/flow_runs/{run}/set_state", [], body)


def test_a_class_that_takes_its_shifts_at_once_has_its_open_runs_read_once(prefect):
    for number in range(300):
        prefect.add("RUNNING", f"Taken by other-{number}.")
    scheduled = [prefect.add("SCHEDULED") for _ in range(100)]

    async def story(shifts: Shifts, api: StudentApi) -> None:
        await asyncio.gather(*(becomes(api, person(f"student-{n}"), run, "PENDING") for n, run in enumerate(scheduled)))
        assert await shifts.open_runs("student-7") == [scheduled[7]]

    in_a_class(prefect, story)
    assert prefect.asked == {"filter": 2, "deployments": 2}  # two pages; both deployments


def test_after_a_restart_all_hear_of_their_own_runs_for_a_few_questions(prefect):
    own = {f"student-{n}": prefect.add("RUNNING", f"Taken by student-{n}.") for n in range(250)}

    async def story(shifts: Shifts, api: StudentApi) -> list[str | None]:
        sockets = [StudentSocket(person(login), "/api/events/out", shifts, list) for login in own]
        return await asyncio.gather(*(socket.frame('{"type": "filter"}') for socket in sockets))

    filters = [json.loads(frame)["filter"]["resource"]["id"] for frame in in_a_class(prefect, story)]
    assert filters == [[f"prefect.flow-run.{run}"] for run in own.values()]
    assert prefect.asked == {"filter": 2, "deployments": 2}


def test_whose_a_run_is_stands_in_its_state_also_while_it_runs_whatever_the_student_writes_there(prefect):
    run = prefect.add("SCHEDULED")

    async def story(shifts: Shifts, api: StudentApi) -> None:
        for kind in ("PENDING", "RUNNING"):
            await becomes(api, person("ada"), run, kind)
            assert prefect.runs[str(run)]["state"]["message"] == "Taken by ada."
        assert await shifts.open_runs("ada") == [run]
        await becomes(api, person("ada"), run, "COMPLETED")
        assert await shifts.open_runs("ada") == []

    in_a_class(prefect, story)
    assert not prefect.asked["history"]


def test_strange_runs_are_asked_for_once_however_many_are_named(prefect):
    mine, hers = prefect.add("RUNNING", "Taken by ada."), prefect.add("RUNNING", "Taken by grace.")
    named = [str(uuid4()) for _ in range(48)] + [str(mine), str(hers)]

    async def story(shifts: Shifts, api: StudentApi) -> Any:
        body = json.dumps({"flow_runs": {"id": {"any_": named}}}).encode()
        return await api.answer(person("ada"), "POST", "/api/flow_runs/filter", [], body)

    assert [run["id"] for run in json.loads(in_a_class(prefect, story).content)] == [str(mine)]
    assert prefect.asked == {"filter": 2, "deployments": 2}  # whose they are, and the answer


def test_a_run_that_the_instructor_has_ended_keeps_nobody_from_taking_another(prefect, monkeypatch):
    monkeypatch.setattr(runs, "AGAIN", 0.0)
    had = [prefect.add("RUNNING", "Taken by ada.") for _ in range(OPEN_RUNS)]
    wanted = prefect.add("SCHEDULED")

    async def story(shifts: Shifts, api: StudentApi) -> list[str]:
        first = await becomes(api, ada := person("ada"), wanted, "PENDING")
        prefect.become(had[0], {"type": "CANCELLED", "message": ""})
        return [json.loads(answer.content)["status"] for answer in (first, await becomes(api, ada, wanted, "PENDING"))]

    assert in_a_class(prefect, story) == ["ABORT", "ACCEPT"]


def test_what_is_taken_or_ended_during_a_look_is_known_after_it(prefect):
    ending, taking = prefect.add("RUNNING", "Taken by ada."), prefect.add("SCHEDULED")

    async def story(shifts: Shifts, api: StudentApi) -> list[UUID]:
        look = asyncio.create_task(shifts.open_runs("ada"))
        while not prefect.asked["filter"]:  # the look's answer is on its way
            await asyncio.sleep(0)
        shifts.took("ada", taking)
        shifts.ended(ending)
        return await look

    assert in_a_class(prefect, story) == [taking]
