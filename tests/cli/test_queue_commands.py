"""`classgan submit`, `queue`, `priority`, `explain`, `workers`: what a person reads, against a real database."""

import json
from unittest.mock import ANY
from uuid import uuid4

import pytest

from gan_core.scheduler.survey import Rules, look
from gan_core.store import student
from gan_core.store.migrate import add_student
from gan_core.store.scheduler import placements


@pytest.fixture
def desk(connection):
    add_student(connection, "instructor")
    return student.register(connection, "desk", uuid4(), "cpu", {})


def test_a_submission_says_where_it_stands_and_the_same_key_is_one_training(classgan, desk):
    assert "mine is queued. Its turn has come" in classgan("submit", "demo", "--name", "mine", "--key", "k")
    assert "mine is queued already: this key was used for it" in classgan(
        "submit", "demo", "--name", "other", "--key", "k"
    )
    text = classgan("submit", "demo", "--name", "big", "--gpus", "2", "--memory", "8192")
    assert "No machine of this class has 2 GPUs with 8,192 MB of memory each (the largest: no GPU)" in text


def test_machines_that_have_joined_are_seen_before_their_first_shift(classgan, connection, desk):
    """Prefect hears of them every ten seconds; a shift they get once something waits for them."""
    connection.execute("UPDATE classgan.workers SET last_seen = now() - interval '1 hour'")
    assert "Needs 1 worker; no such workers are online, 1 is known" in classgan("submit", "demo", "--name", "early")
    for login in ("ada", "grace"):
        add_student(connection, login, login.title())
    placements.heard(connection, ["ada", "grace-laptop", "desk"])
    text = classgan("submit", "demo", "--name", "mine")
    assert "3 workers have joined and are brought in now; it starts within seconds if they are what it needs" in text
    shown = json.loads(classgan("status", "--json"))["workers"]
    assert {(w["name"], w["student"], w["seconds_silent"] < 20) for w in shown} == {
        ("ada", "Ada", True), ("grace-laptop", "Grace", True), ("desk", "instructor", True)
    }  # fmt: skip
    connection.execute("UPDATE classgan.workers SET last_seen = now()")  # its shift has begun
    assert placements.waiting(connection) == 2
    connection.execute("UPDATE classgan.joined SET last_seen = now() - interval '31 seconds'")
    assert placements.waiting(connection) == 0


def test_each_device_of_a_worker_is_its_machine(connection, desk):
    connection.execute("UPDATE classgan.workers SET name = 'desk cuda:0'")
    placements.heard(connection, ["desk"])
    assert placements.waiting(connection) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--gpus", "-1"], "gpus: Input should be greater than or equal to 0 (got -1)"),
        (["--min-workers", "9"], "min_workers is 9, but an iteration of this plan has units for 3"),
        (["--set", "batch_size=1"], "batch_size: Input should be greater than or equal to 2 (got 1)"),
        (["--set", "hub_licence=banana"], "hub_licence: the Hugging Face Hub knows no licence 'banana'"),
        (["--priority", "5000"], "priority: Input should be less than or equal to 1000 (got 5000)"),
    ],
)
def test_impossible_values_are_refused_with_field_value_and_limit_and_nothing_is_queued(classgan, arguments, sentence):
    assert sentence in classgan("submit", "demo", *arguments)
    assert "Nothing runs and nothing waits" in classgan("queue")


def test_files_in_four_shapes_are_taken(classgan, tmp_path):
    shapes = {
        "plan.yaml": "iterations: 7\n",
        "ours.json": json.dumps({"name": "ours", "plan": {"iterations": 8}, "demand": {"priority": 2}}),
        "task.json": json.dumps(
            {"name": "A task", "required_gpus": 1, "min_gpu_memory": 4096, "params": {"lr": "0.01"}}
        ),
        "job.json": json.dumps(
            {"algorithm": "dcgan", "dataset_id": "digits", "train_data_version_hash": "v", "output_model_name": "job"}
        ),
    }
    for name, text in shapes.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        classgan("submit", str(tmp_path / name))
    rows = json.loads(classgan("queue", "--json"))
    assert [(r["name"], r["position"], r["priority"]) for r in rows] == [
        ("ours", 1, 2), ("plan", 2, 0), ("a-task", 3, 0), ("job", 4, 0)
    ]  # fmt: skip
    (tmp_path / "licence.yaml").write_text("hub_licence: banana\n", encoding="utf-8")
    assert "knows no licence 'banana'" in classgan("submit", str(tmp_path / "licence.yaml"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "neither a file nor a preset. Name a YAML or JSON file with KEY: VALUE lines"),
        ("folder", "is a folder, not a plan. Name a YAML or JSON file with KEY: VALUE lines"),
        (b"- 1\n", "holds no KEY: VALUE lines. Name a YAML or JSON file"),
        (b"hello\n", "holds no KEY: VALUE lines. Name a YAML or JSON file"),
        (b"", "holds nothing. Name a YAML or JSON file"),
        (b"\x89PNG\r\n", "is no text, so it is not a plan. Name a YAML or JSON file"),
        (b"a: [", "is neither YAML nor JSON: while parsing a flow node. Name a YAML or JSON file"),
        (b"1: 2\n", "1 is no name of a knob. A plan has lines such as iterations: 50."),
        (b"plan: [1]\n", "plan is [1]: write its fields as KEY: VALUE lines below it."),
        (b"plan: demo\ndemand: 3\n", "demand is 3: write its fields as KEY: VALUE lines below it."),
    ],
    ids=["missing", "folder", "list", "text", "empty", "picture", "broken", "number", "plan", "demand"],
)
def test_what_is_no_plan_is_refused_with_what_would_be_one(classgan, tmp_path, content, said):
    path = tmp_path / "given.yaml"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    assert said in classgan("submit", str(path))


def test_every_knob_that_is_wrong_is_named_at_once(classgan):
    """By `plan` as by `submit`."""
    wrong = ("--set", "nonsense=3", "--set", "batch_size=1", "--set", "rubbish=x")
    for command in (("plan",), ("submit", "demo"), ("train-local",)):
        said = classgan(*command, *wrong)
        assert "nonsense: a plan has no such knob; `classgan plan` lists them" in said
        assert "rubbish: a plan has no such knob" in said
        assert "batch_size: Input should be greater than or equal to 2 (got 1)" in said
    assert "--set 'one', 'two' is not KEY=VALUE" in classgan("plan", "--set", "one", "--set", "two")


def test_order_priority_explanation_and_workers(classgan, connection, desk):
    for name in ("one", "two", "three"):
        classgan("submit", "demo", "--name", name)
    look(connection, Rules(max_running=1))
    assert "three is at the top of the queue." in classgan("queue", "move", "three", "--top")
    assert "three comes right after two." in classgan("queue", "move", "three", "--after", "two")
    assert "Say where: --top, or --after OTHER." in classgan("queue", "move", "three")
    table = classgan("queue")
    assert table.index("one") < table.index("two") < table.index("three")
    assert "two has priority 7 now" in classgan("priority", "two", "7")
    assert "three has priority -5 now" in classgan("priority", "three", "-5")
    assert "the worker that it needs at least" in classgan("explain", "one")
    assert "the worker that it needs at least" in classgan("explain", "desk")
    assert "neither a training nor a worker called 'nobody'" in classgan("explain", "nobody")
    classgan("submit", "demo", "--name", "timed", "--set", "quorum=auto", "--set", "target_seconds=7")
    assert "Its iterations last 7 s, as its plan says." in classgan("explain", "timed")
    assert "desk finishes what it has and gets nothing new" in classgan("workers", "--drain", "desk")
    assert "There is no worker called 'nobody'. Workers here: desk." in classgan("workers", "--undrain", "nobody")


def test_workers_and_reasons_are_there_for_programs_too(classgan, connection, desk):
    for name in ("one", "big"):
        classgan("submit", "demo", "--name", name, *(("--gpus", "2") if name == "big" else ()))
    look(connection, Rules(max_running=1))
    (worker,) = json.loads(classgan("workers", "--json"))
    assert (worker["name"], worker["device"], worker["images"]) == ("desk", "cpu", 0)
    assert json.loads(classgan("workers", "--drain", "desk", "--json")) == [{**worker, "seconds_silent": ANY}]
    assert json.loads(classgan("explain", "one", "--json")) == {
        "name": "one",
        "reason": "its turn has come: its coordinator is being started",
        "never": "",
        "length": "",
        "placements": [
            {"worker": "desk", "student": "instructor", "training": "one", "decided_at": ANY, "ended_at": None,
             "reason": "the worker that it needs at least"}
        ],
    }  # fmt: skip
    assert "no machine of this class has 2 GPUs" in json.loads(classgan("explain", "big", "--json"))["never"]
    assert json.loads(classgan("explain", "desk", "--json"))["placements"][0]["training"] == "one"
