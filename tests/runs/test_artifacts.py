"""What Prefect shows: the leaderboard's ranks, one progress artifact that moves, and nothing that waits for a dead server."""

from types import SimpleNamespace
from uuid import uuid4

import pytest

from tasks.background import artifacts, prefect_events


def credit(name: str, images: int) -> SimpleNamespace:
    return SimpleNamespace(display_name=name, images=images, units=images // 10)


def test_equal_work_has_an_equal_rank_and_who_did_nothing_is_not_shamed():
    rows = artifacts.ranked([credit("Ada", 60), credit("Alan", 20), credit("Grace", 20), credit("Mary", 0)])
    assert [(row["rank"], row["student"], row["share"]) for row in rows] == [
        (1, "Ada", "60.0%"),
        (2, "Alan", "20.0%"),
        (2, "Grace", "20.0%"),
    ]
    assert artifacts.ranked([]) == []


@pytest.fixture
def calls(monkeypatch):
    """What Prefect's client is asked, in order."""
    made: list[tuple[str, object]] = []

    def note(name: str):
        def call(*args, **given):
            made.append((name, given.get("key") or args[0]))
            return uuid4()

        return call

    for name in ("create_progress_artifact", "create_table_artifact", "update_progress_artifact"):
        monkeypatch.setattr(artifacts, name, note(name))
    monkeypatch.setattr(artifacts, "_progress", {})
    monkeypatch.setattr(artifacts, "_shown_at", {})
    return made


def test_progress_is_one_artifact_that_is_updated_every_few_seconds(calls, monkeypatch):
    for progress in (0.1, 0.2):  # at once: the second one costs nothing
        if artifacts.is_status_due("digits", is_last=False):
            artifacts.show_status("digits", "line", progress, [], [])
    assert artifacts.is_status_due("digits", is_last=True)
    artifacts.show_status("digits", "line", 1.0, [], [])
    progress_calls = [name for name, _ in calls if "progress" in name]
    assert progress_calls == ["create_progress_artifact", "update_progress_artifact"]
    assert ("create_table_artifact", "leaderboard") in calls


def test_what_prefect_does_not_take_is_skipped_with_a_line(caplog):
    with artifacts.skipped_if_prefect_is_away("the samples of iteration 3"):
        raise ConnectionError("All connection attempts failed\nand more")
    assert "Prefect did not take the samples of iteration 3, and it is skipped: All connection" in caplog.text


def test_quick_iterations_give_one_sign_every_few_seconds_and_the_end_one_at_once(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(prefect_events, "emit_event", lambda event, resource: said.append(event))
    monkeypatch.setattr(prefect_events, "_said_at", {})
    for _ in range(3):
        prefect_events.moved("digits")
    prefect_events.ended("digits")
    prefect_events.moved("digits")  # started again
    assert said == [prefect_events.MOVED, prefect_events.ENDED, prefect_events.MOVED]
