"""Real servers, real workers, real signals: what a class must survive."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import psycopg
import pytest
from campus import put_modules_like_ours
from killing import engines, kill_tree
from poll import wait_until
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from deployments.local import stack
from deployments.local.processes import free_port
from deployments.local.stack import LocalStack
from deployments.prefect_settings import PREFECT, prefect_file
from gan_core.policies.sampling import cut_units
from gan_core.settings import settings
from gan_core.store.migrate import add_student
from tasks.background import crash_vanished

ENDED = ("Completed", "Failed", "Crashed", "Cancelled")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def units_of(plan) -> int:
    """How many units the plan's iterations have; an epoch's last one is short."""
    return sum(len(units) for units in all_units(plan))


def reference_images(plan) -> int:
    return sum(unit.images for units in all_units(plan) for unit in units)


def all_units(plan):
    position = 0
    for _ in range(plan.iterations):
        units, position = cut_units(plan, position, 5000)
        yield units


def test_three_workers_under_prefect_give_the_weights_of_the_reference(school, story):
    school.assert_equals_the_reference(story.name, story.plan)
    assert school.units_by_state(story.name) == {"done": units_of(story.plan)}


def test_the_prefect_ui_reads_as_a_story(school, story):
    """Five tasks an iteration, by their names."""

    def names() -> set[str]:
        of_this_run = {"flow_runs": {"id": {"any_": [story.run]}}, "limit": 200}
        return {task["name"] for task in school.stack._api("POST", "/task_runs/filter", of_this_run)}

    rounds = range(story.plan.iterations)
    wanted = {f"{verb} it {n}" for n in rounds for verb in ("create-units", "await-gradients", "aggregate")}
    wanted |= {f"{verb} it {n + 1}" for n in rounds[1::2] for verb in ("sample", "push")}
    wait_until(lambda: names() >= wanted, 60, "the names of all tasks")
    folder = school.stack.outputs / story.name
    assert {p.name for p in folder.iterdir()} >= {
        "generator.safetensors",
        "discriminator.safetensors",
        "timeline.gif",
        "samples",
    }
    shifts = school.stack._api("POST", "/flow_runs/filter", {"flow_runs": {"name": {"like_": "shift of"}}, "limit": 50})
    # A quick training ends before all have begun: each that has is called after its machine.
    begun = {
        f"shift of {name}"
        for (name,) in school.ask("SELECT name FROM classgan.workers WHERE name IN ('ada', 'grace', 'alan')")
    }
    assert begun
    assert {s["name"] for s in shifts} >= begun


def test_prefect_shows_samples_progress_leaderboard_and_a_report(school, story):
    def artifacts() -> dict[str, dict]:
        """The newest artifact of each key."""
        found = school.stack._api("POST", "/artifacts/latest/filter", {"limit": 200})
        return {artifact["key"]: artifact for artifact in found}

    wait_until(lambda: "report-story" in artifacts(), 60, "the report")
    shown = artifacts()
    assert shown.keys() >= {"samples-story", "workers-story"}
    assert shown["progress-story"]["data"] == 100
    versions = {"artifacts": {"key": {"any_": ["progress-story"]}}}
    assert len(school.stack._api("POST", "/artifacts/filter", versions)) == 1  # updated, not made again
    assert "rank" in shown["leaderboard"]["data"]
    report = shown["report-story"]["data"]
    assert report.count("data:image/png;base64,") == 2  # curves and samples
    assert "| random-feature distance, lower is better |" in report
    assert "| KID in the same features, with its standard error, lower is better |" in report
    assert len(report) < 500_000


def test_a_worker_killed_in_the_middle_of_a_unit_loses_it_to_another_and_its_run_is_shown_as_crashed(
    school, plan, monkeypatch
):
    monkeypatch.setattr(crash_vanished, "VANISHED", 6.0)
    monkeypatch.setattr(settings(), "database_url", school.stack.postgres.url())
    plan = plan.changed(iterations=20)
    school.start("killed-worker", plan)
    school.await_iteration("killed-worker", 2)

    def has_a_unit() -> bool:
        return bool(
            school.ask(
                "SELECT 1 FROM classgan.leases l JOIN classgan.workers w ON w.id = l.worker_id WHERE w.name = 'ada' AND l.ended_at IS NULL",
            )
        )

    wait_until(has_a_unit, 60, "a lease of ada's", every=0.01)
    ((gone,),) = school.ask("SELECT run_id FROM classgan.workers WHERE name = 'ada'")
    with temporary_settings({PREFECT_API_URL: f"{school.stack.ui}/api"}), get_client(sync_client=True) as client:
        assert gone not in crash_vanished.vanished_shifts(client)
        kill_tree(school.stack.children["worker-ada"].pid)
        wait_until(lambda: gone in crash_vanished.vanished_shifts(client), 60, "the suspicion")
        living = {
            run
            for (run,) in school.ask(
                "SELECT run_id FROM classgan.workers WHERE last_seen > now() - interval '3 seconds' AND run_id IS NOT NULL"
            )
        }
        assert living
        assert not living & crash_vanished.vanished_shifts(client)
        crash_vanished.crash(client, {gone})
        assert school.stack.run_state(str(gone))[0] == "Crashed"
    school.await_success("killed-worker")
    school.assert_equals_the_reference("killed-worker", plan)
    assert school.units_by_state("killed-worker") == {"done": units_of(plan)}
    counted = school.ask(
        "SELECT sum(c.units), sum(c.images) FROM classgan.contributions c JOIN classgan.trainings t ON t.id = c.training_id"
        " WHERE t.name = 'killed-worker' AND c.verdict = 'accepted'",
    )
    assert counted == [(units_of(plan), reference_images(plan))]
    school.stack.start_worker("ada")


@pytest.mark.rehearsal  # without Prefect: tests/faults
def test_a_killed_coordinator_is_continued_to_the_weights_of_an_unbroken_run(school, plan):
    school.start("killed-coordinator", plan)
    school.await_iteration("killed-coordinator", 6)  # beyond the checkpoint at 4
    instructor = school.stack.children["instructor"]
    for engine in engines(instructor):
        engine.kill()
    wait_until(lambda: not engines(instructor), 30, "the coordinator's death")
    assert 0 < school.iteration("killed-coordinator") < plan.iterations
    school.start("killed-coordinator", plan)
    school.await_success("killed-coordinator")
    school.assert_equals_the_reference("killed-coordinator", plan)


def test_what_a_killed_class_had_started_and_not_yet_noted_is_ended_by_the_next(tmp_path):
    """Between starting a process and writing its number down, a busy disk takes its time."""
    killed = LocalStack(tmp_path / "home", tmp_path / "outputs")
    killed._make_folders()
    killed._remember()
    script = "import time; print('here', flush=True); time.sleep(600)"
    child = subprocess.Popen(
        [sys.executable, "-c", script], env=killed.environment(), start_new_session=True, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()  # a process has no environment for a moment: Linux tells it when the program is mapped
        LocalStack(tmp_path / "home", tmp_path / "outputs")._end_leftovers()
        child.wait(10)
    finally:
        child.kill()
        child.communicate()


def test_of_two_classes_that_choose_the_same_port_each_gets_a_server_of_its_own(
    school, tmp_path, class_home, monkeypatch
):
    """The port was free when it was chosen, and is taken some seconds later, by a server that answers every question."""
    other = LocalStack(tmp_path / "home", tmp_path / "outputs")
    class_home(other.home)
    chosen = iter([int(school.stack.ui.rpartition(":")[2])])
    monkeypatch.setattr(stack, "free_port", lambda wished: next(chosen, None) or free_port(wished))
    try:
        other._make_folders()
        other.postgres.start()
        other._serve()
        assert other.ui == school.stack.ui
        other._await_server()
        assert other.ui != school.stack.ui
        assert not other._api("POST", "/deployments/filter", {})  # they are the school's
        assert school.stack._api("POST", "/deployments/filter", {})
    finally:
        other.stop()


@pytest.mark.rehearsal
def test_servers_that_die_are_waited_for(school, plan, record_property):
    """PostgreSQL and the Prefect server are killed and come back: no worker dies, and the weights are the same."""
    plan = plan.changed(images_per_unit=80, quorum=240, iterations=20)
    school.start("servers", plan)
    school.await_iteration("servers", 2)
    workers = [school.stack.children[f"worker-{name}"] for name in ("grace", "alan")]

    postgres = school.stack.postgres
    postgres.process.kill()
    postgres.process.wait()
    postgres.start()
    before = school.iteration("servers")
    school.await_iteration("servers", before + 2)

    server = school.stack.children["prefect-server"]
    command = psutil.Process(server.pid).cmdline()
    kill_tree(server.pid)
    server.wait()
    before, struck = school.iteration("servers"), time.monotonic()
    school.await_iteration("servers", before + 1)
    record_property("moved again", ("Prefect server: killed", "training under way", time.monotonic() - struck))
    school.await_iteration("servers", before + 4)  # a training that is under way needs no Prefect
    school.stack.spawn("prefect-server", command)
    school.await_success("servers")
    school.assert_equals_the_reference("servers", plan)
    assert all(worker.poll() is None for worker in workers)
    school.stack._await_server()


@pytest.mark.rehearsal
def test_ctrl_c_on_a_students_worker_ends_its_shift_as_completed(school, plan):
    """It finishes its unit, submits it and ends; nothing is left leased, nothing is left running."""
    school.start("drained", plan.changed(iterations=1_000))
    school.await_iteration("drained", 2)
    worker = school.stack.children["worker-grace"]
    (engine,) = wait_until(lambda: engines(worker), 60, "grace's shift")
    run = engine.environ()["PREFECT__FLOW_RUN_ID"]
    worker.send_signal(signal.SIGINT)
    assert worker.wait(60) == 0
    assert not engine.is_running()
    wait_until(lambda: school.stack.run_state(run)[0] == "Completed", 30, "the shift's end in Prefect")
    lost = school.ask(
        "SELECT outcome FROM classgan.leases l JOIN classgan.workers w ON w.id = l.worker_id JOIN classgan.trainings t ON t.id = l.training_id"
        " WHERE w.name = 'grace' AND t.name = 'drained' AND outcome NOT IN ('accepted', 'late', 'the iteration closed')",
    )
    assert lost == []
    school.cancel("drained")
    school.stack.start_worker("grace")


@pytest.mark.rehearsal  # what a machine refuses, tests/abuse/test_hostile_server.py tries one by one
def test_a_students_machine_runs_nothing_but_the_pinned_flow(school, tmp_path):
    """A command in job variables is not looked at; another flow in the pool is refused in words."""
    school.await_quiet()
    trap = tmp_path / "executed"
    api = school.stack._api
    shift = api("GET", "/deployments/name/gradient-compute/shift")
    run = api(
        "POST",
        f"/deployments/{shift['id']}/create_flow_run",
        {
            "state": {"type": "SCHEDULED"},
            "job_variables": {"command": f"touch '{trap}'", "env": {"EVIL": "1"}},
            "parameters": {"idle_seconds": 1},
        },
    )["id"]
    state, message = wait_until(lambda: (s := school.stack.run_state(run))[0] in ENDED and s, 120, "the shift's end")
    assert state == "Completed", message
    assert not trap.exists()

    grades = api("GET", "/deployments/name/export-grades/export-grades")
    other = api(
        "POST",
        "/deployments/",
        {
            "name": "elsewhere",
            "flow_id": grades["flow_id"],
            "work_pool_name": "students",
            "entrypoint": "flows.export_grades.export_grades",
        },
    )
    run = api("POST", f"/deployments/{other['id']}/create_flow_run", {"state": {"type": "SCHEDULED"}})["id"]
    state, message = wait_until(lambda: (s := school.stack.run_state(run))[0] == "Crashed" and s, 120, "the refusal")
    assert "refused: this machine runs only flows.gradient_compute.gradient_compute" in message


def test_a_students_own_tasks_py_does_not_break_a_worker_or_the_command(school, story, tmp_path):
    """Modules called like our packages in the current folder are never imported, nor were they by the class of the story."""
    assert (school.stack.home / "tasks.py").exists()
    put_modules_like_ours(tmp_path)
    bin_folder = Path(sys.executable).parent
    helped = subprocess.run(
        [bin_folder / "classgan", "plan"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert helped.returncode == 0, helped.stderr

    with psycopg.connect(school.stack.postgres.url(), autocommit=True) as connection:
        add_student(connection, "eve")
    environment = {**school.stack.environment("eve"), "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    with (tmp_path / "log").open("w") as log:
        worker = subprocess.Popen(
            ["prefect", "worker", "start", "--pool", "students", "--name", "eve"],
            cwd=tmp_path,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(
            lambda: "Worker 'eve' started!" in (tmp_path / "log").read_text(encoding="utf-8"), 60, "eve's worker"
        )
    finally:
        worker.send_signal(signal.SIGINT)
        worker.wait(60)
    assert "Discovered type 'gan-student'" in (tmp_path / "log").read_text(encoding="utf-8")


def test_deploying_twice_changes_nothing(school, tmp_path):
    def deployments() -> dict[str, tuple]:
        found = school.stack._api("POST", "/deployments/filter", {"limit": 100})
        return {
            d["name"]: (d["id"], d["entrypoint"], d["path"], json.dumps(d["parameters"], sort_keys=True)) for d in found
        }

    before = deployments()
    done = subprocess.run(
        [*PREFECT, "--no-prompt", "deploy", "--all", "--prefect-file", str(prefect_file())],
        env=school.stack.environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert deployments() == before
    assert set(before) >= {"train", "train-dcgan", "train-better", "shift", "export-grades", "housekeeping"}
    assert all(path is None for _, _, path, _ in before.values()), "a deployment remembers a folder of this machine"


def test_grades_and_housekeeping_run_as_deployments(school, story):
    api, target = school.stack._api, school.stack.outputs / "from prefect.csv"
    for name, parameters in (("export-grades/export-grades", {"path": str(target)}), ("housekeeping/housekeeping", {})):
        deployment = api("GET", f"/deployments/name/{name}")
        run = api(
            "POST",
            f"/deployments/{deployment['id']}/create_flow_run",
            {"state": {"type": "SCHEDULED"}, "parameters": parameters},
        )["id"]
        wait_until(lambda run=run: school.stack.run_state(run)[0] == "Completed", 90, f"the end of {name}")
    with target.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {"login", "name", "mark", "units", "images"} <= set(rows[0])
    images = sum(int(row["images"]) for row in rows)
    assert images == school.ask("SELECT sum(images)::bigint FROM classgan.contributions WHERE credited")[0][0]
