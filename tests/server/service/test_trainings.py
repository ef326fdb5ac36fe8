"""A training over HTTP, from its submission to its files; and by the client in Python, by curl, in other systems' shapes."""

import re
import shutil
import subprocess

import pytest
from classroom import Classroom
from foreign import JOB, TASK
from gated import SECRETS, SMALL
from pages import lines
from poll import wait_until

from deployments.server.client import Class
from gan_core.errors import StoreUnreachable, TrainingError
from gan_core.networks.generators import finished, save
from gan_core.plan import Plan
from gan_core.scheduler.survey import Rules, look
from gan_core.store.coordinator import trainings
from gan_core.units import TrainingState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_the_whole_life_of_a_training(service, base, cache, connection):
    """Submitted, waiting with a reason, running with figures, paused, resumed, done, and all it left behind."""
    made = service.ask_as("ada", "POST", "/trainings", {"name": "Life", "plan": SMALL})
    assert made.status_code == 201
    assert made.headers["location"] == "/classgan/v1/trainings/life"
    status = made.json()
    assert (status["state"], status["position_in_queue"], status["name"]) == ("queued", 1, "life")
    assert "no worker has joined yet" in status["message"]
    assert status["metadata"]["owner"] == "ada"
    assert status["metadata"]["plan"]["quorum"] == 48

    known = service.ask_as("ada", "GET", "/trainings/life")
    tag = {"since": known.headers["etag"]}
    assert service.ask_as("ada", "GET", "/trainings/life", params=tag).status_code == 304
    same = {"if-none-match": known.headers["etag"]}
    assert service.ask_as("ada", "GET", "/trainings/life", headers=same).status_code == 304

    assert "pauses" in service.ok("ada", "POST", "/trainings/life/pause")["message"]
    changed = service.ok("ada", "GET", "/trainings/life", params=tag | {"wait": 20})
    assert changed["state"] == "paused"
    assert "is paused, so there is nothing to pause" in service.refused(409, "ada", "POST", "/trainings/life/pause")
    assert service.ok("ada", "POST", "/trainings/life/resume")["state"] == "queued"
    assert "is queued: only a failed" in service.refused(409, "ada", "POST", "/trainings/life/retry")

    classroom = Classroom(base, cache)
    with classroom.working(1):
        wait_until(lambda: service.ok("grace", "GET", "/workers"), 20, "a worker")
        turn = look(connection, Rules())
        assert [call.name for call in turn.calls] == ["life"]
        classroom.train(Plan(**SMALL), "life")
    done = service.ok("ada", "GET", "/trainings/life")
    assert (done["state"], done["metrics"]["iteration"], done["metrics"]["iterations"]) == ("succeeded", 2, 2)
    assert done["metrics"]["last"]["number"] == 1
    assert done["position_in_queue"] is None

    first = service.ok("ada", "GET", "/trainings/life/metrics", params={"limit": 1})
    assert [row["number"] for row in first["items"]] == [0]
    rest = service.ok("ada", "GET", "/trainings/life/metrics", params={"after": first["next"]})
    assert [row["number"] for row in rest["items"]] == [1]
    assert rest["next"] is None
    assert rest["items"][0]["g_loss"] is not None

    said = [event["text"] for event in service.ok("ada", "GET", "/trainings/life/events")["items"]]
    assert said[0] == "Submitted by Ada L.."
    assert "Paused by Ada L.: it was queued." in said

    number = trainings.get(connection, "life").id
    trainings.save_sample(connection, number, 2, b"\x89PNG")
    state = classroom.train(Plan(**SMALL), "other-way", until=0).state
    save(service.folder / "outputs" / "life" / "generator.safetensors", finished(Plan(**SMALL), state.average, 2, 96))
    listed = service.ok("ada", "GET", "/trainings/life/artifacts")["items"]
    assert [(a["kind"], a["iteration"]) for a in listed] == [("samples", 2), ("generator", None)]
    for artifact in listed:
        found = service.ask_as("ada", "GET", artifact["href"].removeprefix("/classgan/v1"))
        assert (found.status_code, found.headers["content-type"]) == (200, artifact["media_type"])
    assert "No samples" in service.refused(404, "ada", "GET", "/trainings/life/samples/7")


def test_the_client_submits_follows_and_reads(service):
    with (
        Class(service.url, "ada", SECRETS["ada"]) as mine,
        Class(service.url, "instructor", SECRETS["instructor"]) as led,
    ):
        assert mine.submit({"name": "by-client", "plan": SMALL}, key="k")["state"] == "queued"
        assert mine.submit({"name": "again", "plan": SMALL}, key="k")["name"] == "by-client"
        seen = mine.follow("by-client")
        assert next(seen)["state"] == "queued"
        assert "cancelled for good" in led.act("by-client", "cancel")
        assert [status["state"] for status in seen] == ["cancelled"]
        assert [t["name"] for t in mine.trainings(state="cancelled")] == ["by-client"]
        assert next(mine.events("by-client"))["text"] == "Submitted by Ada L.."
        assert list(mine.metrics("by-client")) == []
        with pytest.raises(TrainingError, match="has published no generator yet"):
            mine.save_generator("by-client", service.folder / "x.safetensors")
        with pytest.raises(TrainingError, match="Only the instructor"):
            mine.act("by-client", "move", after="other")
    with Class("http://127.0.0.1:9", "ada", "x") as nobody, pytest.raises(StoreUnreachable, match="does not answer"):
        nobody.status("by-client")


def test_a_failed_training_is_tried_again(service, connection):
    service.submit("ada", "broken")
    trainings.set_state(connection, trainings.get(connection, "broken").id, TrainingState.FAILED, "the disk is full")
    assert "the disk is full" in service.ok("ada", "GET", "/trainings/broken")["message"]
    assert service.ok("ada", "POST", "/trainings/broken/retry")["state"] == "queued"
    assert service.ok("ada", "POST", "/trainings/broken/cancel")["state"] == "cancelled"
    assert "cancelled for good" in service.refused(409, "ada", "POST", "/trainings/broken/resume")


def test_the_same_key_is_the_same_training(service):
    body, key = {"name": "keyed", "plan": SMALL}, {"headers": {"idempotency-key": "monday"}}
    assert service.ask_as("ada", "POST", "/trainings", body, **key).status_code == 201
    again = service.ask_as("ada", "POST", "/trainings", body | {"name": "renamed"}, **key)
    assert (again.status_code, again.json()["name"]) == (200, "keyed")
    assert "already" in service.refused(409, "grace", "POST", "/trainings", body, **key)


def test_the_samples_of_both_systems_guides_are_understood_and_say_why_not(service):
    """As they stand: an image classifier and a text classifier, which are no GANs. With a GAN in them, they are trained."""
    said = service.refused(422, "instructor", "POST", "/trainings", TASK)
    assert "model is 'resnet50', which is no GAN of this class: choose dcgan or spectral" in said
    assert "weight_decay (got '0.0001') is unknown here" in said
    answer = service.ask_as("instructor", "POST", "/trainings", JOB).json()
    assert {"model", "data", "FC_SIZE", "learning_rate_g"} <= {fault["field"] for fault in answer["errors"]}
    missing = {"metadata": {k: v for k, v in JOB["metadata"].items() if k != "train_data_version_hash"}}
    assert "A job needs train_data_version_hash" in service.refused(422, "instructor", "POST", "/trainings", missing)

    params = {"model": "dcgan", "dataset": "mnist", "optimizer": "adam", "batch_size": "64", "momentum": "0.5"}
    task = service.ok("instructor", "POST", "/trainings", TASK | {"params": params})
    assert task["metadata"]["demand"]["gpus"] == 2
    assert "no worker has joined yet" in task["message"] or "no machine of this class" in task["message"]
    job = JOB["metadata"] | {"algorithm": "dcgan", "dataset_id": "digits"}
    job |= {"parameters": {"LR": "0.004", "EPOCHS": "10", "PARALLEL_INSTANCES": "3"}}
    status = service.ok("instructor", "POST", "/trainings", {"metadata": job})
    assert (status["name"], status["metadata"]["demand"]["min_workers"]) == ("test1", 3)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": "x", "plan": {"batch_size": 1}}, "batch_size: Input should be greater than or equal to 2 (got 1)"),
        ({"name": "x", "plan": "huge"}, "plan"),
        ({"name": "x", "demand": {"gpus": -1}}, "demand.gpus: Input should be greater than or equal to 0 (got '-1')"),
        ({"name": "x", "plan": {"data_version": "faces@1"}}, "There is no data version 'faces@1'"),
        ({"name": "!"}, "name is '!'"),
        ({"name": "x", "nonsense": 1}, "nonsense: Extra inputs are not permitted"),
        ([1], "the body"),
    ],
)
def test_impossible_values_are_named(service, body, said):
    assert said in service.refused(422, "instructor", "POST", "/trainings", body)


def test_the_calls_on_the_page_work(service):
    """docs/service.md, with this class's address and without its certificate."""
    if not shutil.which("curl"):
        pytest.skip("curl is not installed: apt install curl")
    places = {"$CLASS": f"{service.url}/classgan/v1", "$LOGIN": f"ada:{SECRETS['ada']}"}
    called = [line for line in lines() if line.page == "docs/service.md" and line.words[0] == "curl"]
    assert len(called) > 5
    for line in called:
        assert line.words[1:3] == ("--cacert", "$PEM")
        words = [re.sub(r"^\$[A-Z]+", lambda m: places[m[0]], word) for word in line.words[3:]]
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--fail-with-body", *words], capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}: {done.stdout} {done.stderr}"
