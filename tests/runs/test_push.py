"""Pushes beside a training: nothing waits for the hub, no limit is broken, and a no is told once."""

import threading
from types import SimpleNamespace

import psycopg
import pytest
from poll import wait_until

from gan_core.errors import HubBusy, HubError
from gan_core.exports import hub as door
from gan_core.settings import Settings
from gan_core.store import student
from gan_core.store.coordinator import events, trainings
from gan_core.store.viewers import ledger
from gan_core.units import EventKind
from tasks.background import push_to_hub
from tasks.background.push_to_hub import HubPushes, hub_pushes

FILES = {"generator.safetensors": b"x"}


@pytest.fixture
def pushed(monkeypatch):
    """What reached the hub: the commit messages."""
    said: list[str] = []

    def commit(repo, files, message, token=None):
        said.append(message)
        return door.Pushed("somewhere", len(files))

    monkeypatch.setattr(door, "commit", commit)
    monkeypatch.setattr(push_to_hub, "token", lambda: None)
    return said


def snapshot(iteration: int, plan, training_id: int = 0):
    return SimpleNamespace(name="test", training_id=training_id, iteration=iteration, plan=plan)


@pytest.fixture
def plan(tiny):
    return tiny.changed(hub_repo="ada/digits", hub_pushes_per_hour=2)


def test_at_most_so_many_an_hour_and_always_the_last(pushed, plan):
    with hub_pushes() as hub:
        hub.offer(snapshot(1, plan), FILES, is_last=False)
        wait_until(lambda: pushed == ["test: iteration 1"], what="the first push")
        for iteration in (2, 3):
            hub.offer(snapshot(iteration, plan), FILES, is_last=False)
        hub.offer(snapshot(4, plan), FILES, is_last=True)
    assert pushed == ["test: iteration 1", "test: iteration 4"]


def test_a_hub_that_hangs_keeps_nobody(monkeypatch, pushed, plan, caplog):
    begun, let_go, ended = threading.Event(), threading.Event(), threading.Event()

    def hang(*given):
        begun.set()
        let_go.wait(30)
        ended.set()
        raise HubBusy("too late")

    monkeypatch.setattr(door, "commit", hang)
    monkeypatch.setattr(push_to_hub, "LAST_SECONDS", 0.1)
    with hub_pushes() as hub:
        hub.offer(snapshot(1, plan), FILES, is_last=False)
        assert begun.wait(20)
        hub.offer(snapshot(2, plan), FILES, is_last=True)
    assert not ended.is_set()
    assert "push it with `classgan push`" in caplog.text
    let_go.set()


def test_a_busy_hub_is_tried_again_after_a_pause(monkeypatch, pushed, plan):
    monkeypatch.setattr(push_to_hub, "FIRST_PAUSE", 0.01)
    answers = [HubBusy("busy"), HubBusy("busy")]
    really = door.commit

    def commit(*given):
        if answers:
            raise answers.pop()
        return really(*given)

    monkeypatch.setattr(door, "commit", commit)
    with hub_pushes() as hub:
        hub.offer(snapshot(1, plan), FILES, is_last=True)
    assert pushed == ["test: iteration 1"]


def test_a_no_is_told_once_and_the_training_goes_on(monkeypatch, plan, database, connection):
    training = trainings.create(connection, "test", plan.model_dump(mode="json"))
    asked: list[str] = []

    def commit(repo, *given):
        asked.append(repo)
        raise HubError("The hub doesn't let this token write to ada/digits (403).")

    monkeypatch.setattr(door, "commit", commit)
    monkeypatch.setattr(push_to_hub, "token", lambda: None)
    monkeypatch.setattr(push_to_hub, "settings", lambda: Settings(database_url=database))
    with hub_pushes() as hub:
        hub.offer(snapshot(1, plan, training.id), FILES, is_last=False)
        wait_until(lambda: events.latest(connection), what="the event")
        hub.offer(snapshot(2, plan, training.id), FILES, is_last=True)
        other = plan.changed(hub_repo="ada/other")  # corrected meanwhile: asked again
        hub.offer(snapshot(3, other, training.id), FILES, is_last=True)
    assert asked == ["ada/digits", "ada/other"]
    first = events.latest(connection)[0]
    assert first.kind is EventKind.HUB
    assert "(403). The training goes on; later: classgan push test" in first.text


def test_without_an_offer_no_thread_is_started():
    before = set(threading.enumerate())  # another test's may still be on its way out
    with hub_pushes():
        assert "hub" not in [thread.name for thread in set(threading.enumerate()) - before]


def test_the_token_comes_from_the_librarys_places_or_from_a_secret_block(monkeypatch):
    import huggingface_hub
    from prefect.blocks.system import Secret

    monkeypatch.setattr(Secret, "load", lambda name: Secret(value=f"of {name}"))
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "found")
    assert push_to_hub.token() == "found"
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert push_to_hub.token() == "of huggingface-token"
    monkeypatch.setattr(Secret, "load", lambda name: 1 / 0)
    assert push_to_hub.token() is None


def test_a_closed_one_pushes_no_more(pushed, plan):
    hub = HubPushes()
    hub.close()
    hub.offer(snapshot(1, plan), FILES, is_last=True)
    hub._thread.join(10)
    assert pushed == []


def test_only_students_themselves_say_whether_they_are_named(classroom, tiny, connection):
    with classroom.working(2):
        training = classroom.train(tiny)
    assert ledger.named_contributors(connection, training.training_id) == []
    worked = {w.student for w in ledger.workers(connection, "test") if w.images}
    for login in ("student0", "student1", "idle"):
        with psycopg.connect(classroom.student_url(login), autocommit=True) as theirs:
            student.be_named(theirs, True)
    assert set(ledger.named_contributors(connection, training.training_id)) == worked
    for login in worked:
        with psycopg.connect(classroom.student_url(login), autocommit=True) as theirs:
            student.be_named(theirs, False)
    assert ledger.named_contributors(connection, training.training_id) == []
