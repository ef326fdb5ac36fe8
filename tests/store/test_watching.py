"""The role that may only look: what it can read, and that there is nothing else it can do. Tried from the catalogue."""

from datetime import UTC, datetime

import psycopg
import pytest
from crowd import SECRETS, fill

from gan_core.store.coordinator import evaluations, runs
from gan_core.store.migrate import VIEWER_ROLE, migrate
from gan_core.store.viewers import ledger, metrics, watching

OURS = "nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'"
DENIED = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.FeatureNotSupported,
)


@pytest.fixture
def viewer(database, connection):
    """The role's own login, as an instructor may open it for a page on another machine."""
    migrate(database)
    connection.execute(f"ALTER ROLE {VIEWER_ROLE} LOGIN")
    try:
        with psycopg.connect(database.replace("//instructor@", f"//{VIEWER_ROLE}@"), autocommit=True) as theirs:
            yield theirs
    finally:
        connection.execute(f"ALTER ROLE {VIEWER_ROLE} NOLOGIN")


def relations(connection, where: str = "true") -> list[str]:
    return [
        name
        for (name,) in connection.execute(
            "SELECT format('%I.%I', nspname, relname) FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace"
            f" WHERE relkind IN ('r', 'v', 'm', 'S', 'p', 'f') AND {OURS} AND {where} ORDER BY 1"
        ).fetchall()
    ]


def test_nobody_logs_in_as_it_until_the_instructor_says_so_and_then_within_limits(database, connection):
    login, limit, settings = connection.execute(
        "SELECT rolcanlogin, rolconnlimit, array_to_string(rolconfig, ' ') FROM pg_roles WHERE rolname = %s",
        (VIEWER_ROLE,),
    ).fetchone()
    assert not login
    assert limit == 16
    assert "default_transaction_read_only=on" in settings
    assert "statement_timeout=10s" in settings
    with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
        psycopg.connect(database.replace("//instructor@", f"//{VIEWER_ROLE}@"))


def test_it_reads_the_views_of_watch_and_no_other_table_view_or_sequence(viewer, connection):
    views, others = relations(connection, "nspname = 'watch'"), relations(connection, "nspname <> 'watch'")
    assert len(views) > 8
    assert len(others) > 12
    for view in views:
        viewer.execute(f"SELECT * FROM {view}")
    for relation in others:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            viewer.execute(f"SELECT * FROM {relation}")


@pytest.mark.parametrize(
    "statement", ["DELETE FROM {}", "TRUNCATE {}", "INSERT INTO {} DEFAULT VALUES", "DROP VIEW {}"]
)
def test_it_changes_nothing_even_with_its_read_only_switched_off(viewer, connection, statement):
    viewer.execute("SET default_transaction_read_only = off")
    for relation in relations(connection):
        with pytest.raises(psycopg.Error) as refused:
            viewer.execute(statement.format(relation))
        assert isinstance(
            refused.value, (*DENIED, psycopg.errors.WrongObjectType, psycopg.errors.ObjectNotInPrerequisiteState)
        ), relation


def test_it_calls_only_what_its_views_are_made_of(viewer, connection):
    functions = connection.execute(
        f"SELECT format('%I.%I', nspname, proname), pronargs, has_function_privilege('{VIEWER_ROLE}', p.oid, 'EXECUTE')"
        f" FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = pronamespace WHERE {OURS}"
    ).fetchall()
    open_ones = {name for name, _, may in functions if may}
    assert open_ones == {"classgan.public", "classgan.plain", "classgan.machine", "classgan.amount"}  # pure ones
    for name, arguments, _ in functions:  # those four too: it doesn't even reach the schema
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            viewer.execute(f"SELECT {name}({', '.join(['NULL'] * arguments)})")


@pytest.mark.parametrize("statement", ["SET ROLE instructor", "SET ROLE classgan_owner", "CREATE TEMPORARY TABLE t (i int)", "CREATE SCHEMA s", "SELECT rolpassword FROM pg_authid"])  # fmt: skip
def test_it_becomes_nothing_more(viewer, statement):
    viewer.execute("SET default_transaction_read_only = off")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        viewer.execute(statement)


def test_what_it_reads_holds_no_login_secret_roster_path_payload_or_reason(viewer, connection, tiny):
    fill(connection, 10, 30, tiny.changed(data="folder:/home/private/faces"))
    read = {
        view: str(viewer.execute(f"SELECT * FROM {view}").fetchall())
        for view in relations(connection, "nspname = 'watch'")
    }
    assert "Ada Lovelace" in read["watch.machines"]
    for view, said in read.items():
        assert not [secret for secret in SECRETS if secret in said], view
        assert "desk.school.example" not in said
        assert "honesty" not in said


@pytest.mark.parametrize("hardware", ['{"cores": "many", "memory_mb": -5, "gpus": 7}', '{"cores": 1e300, "gpus": [[1]]}', "[]", '"x"'])  # fmt: skip
def test_a_machine_that_talks_nonsense_about_itself_breaks_nothing(database, connection, tiny, hardware):
    fill(connection, 2, 3, tiny)
    connection.execute("UPDATE classgan.workers SET hardware = %s, device = 'cuda:99'", (hardware,))
    with watching.viewer(database) as looking:
        machines = watching.machines(looking)
    assert len(machines) == 2
    assert all(m.cores in (None, 4096) and m.memory_mb in (None, 0) and m.gpu_memory_mb is None for m in machines)


def test_whoever_opens_it_reads_as_the_viewer(database, connection, tiny):
    with watching.viewer(database) as looking:
        assert looking.execute("SELECT current_user").fetchone() == (VIEWER_ROLE,)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), looking.transaction():
            looking.execute("CREATE TABLE watch.mine (i int)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            looking.execute("SELECT * FROM classgan.students")


def test_the_curve_of_any_length_has_the_points_that_were_asked_for(database, connection, tiny):
    training = fill(connection, 1, 1_000, tiny)
    with watching.viewer(database) as looking:
        points = watching.curve(looking, training, points=100)
        every = watching.curve(looking, training, points=5_000)
        times = watching.time_breakdown(looking, training)
    assert len(points) == 100
    assert len(every) == 1_000
    assert points[-1].iteration == every[-1].iteration == 999
    assert points[-1].images_seen == every[-1].images_seen == 48_000
    assert sum(p.g_loss for p in points) / 100 == pytest.approx(sum(p.g_loss for p in every) / 1_000)
    assert every[-1].minutes == pytest.approx(1_000 * 1.8 / 60)
    assert times.iterations == watching.BREAKDOWN_ITERATIONS
    assert times.seconds == pytest.approx(19 * 2 + 1.8)
    assert times.lease_seconds == pytest.approx(20 * 1.5)
    assert times.compute_seconds == pytest.approx(20 * 1.2)


def test_who_was_waited_for_alone_is_named(database, connection, tiny):
    training = fill(connection, 3, 30, tiny)
    connection.execute(
        "UPDATE classgan.contributions SET submitted_at = submitted_at + interval '0.25 s'"
        " WHERE worker_id = (SELECT min(id) FROM classgan.workers)"
    )
    with watching.viewer(database) as looking:
        times = watching.time_breakdown(looking, training)
    assert times.alone == "Ada Lovelace (laptop)"
    assert times.alone_seconds == pytest.approx(20 * 0.25)


def test_time_of_training_is_without_queue_preparation_and_pauses(connection, tiny):
    """Two runs of ten seconds, with an hour between them and a minute of preparation before the first."""
    training = fill(connection, 1, 30, tiny)
    plan = tiny.model_dump(mode="json")
    for number, (began, ended) in enumerate(((3_730, 3_660), (60, 50))):
        runs.begin(connection, training, plan)
        connection.execute(
            "UPDATE classgan.runs SET started_at = now() - make_interval(secs => %s), ended_at = now() - make_interval(secs => %s),"
            " first_iteration = %s WHERE ended_at IS NULL",
            (began, ended, number),
        )
    connection.execute("UPDATE classgan.iterations SET opened_at = now() - interval '3670 seconds' WHERE number < 2")
    (row,) = watching.trainings(connection)
    assert (row.seconds_trained, row.ended_at) == (pytest.approx(20, abs=2), None)
    assert ledger.seconds_trained(connection, training) == pytest.approx(20, abs=2)
    connection.execute("UPDATE classgan.trainings SET state = 'succeeded'")
    (row,) = watching.trainings(connection)
    assert row.seconds_trained == pytest.approx(20, abs=2)
    assert (datetime.now(UTC) - row.ended_at).total_seconds() == pytest.approx(50, abs=5)


def test_a_pause_inside_an_iteration_is_no_time_of_training(connection, tiny):
    """The last iteration was open for an hour and a second, and paused in between for the hour."""
    training = fill(connection, 1, 30, tiny)
    connection.execute(
        "UPDATE classgan.iterations SET opened_at = opened_at - interval '2 hours', closed_at = closed_at - interval '2 hours'"
        " WHERE number < 29"
    )
    before = evaluations.training_seconds(connection, training, 30)
    plan = tiny.model_dump(mode="json")
    for _ in range(2):
        runs.begin(connection, training, plan)
    with connection.transaction():  # one now for all
        connection.execute("UPDATE classgan.runs SET ended_at = now() - interval '3601 seconds' WHERE number = 1")
        connection.execute("UPDATE classgan.runs SET started_at = now() - interval '1 second' WHERE number = 2")
        connection.execute(
            "UPDATE classgan.iterations SET opened_at = now() - interval '3601.5 seconds', closed_at = now() - interval '0.5 seconds'"
            " WHERE number = 29"
        )
    about = {"abs": 0.01}
    assert ledger.history(connection, training)[-1].seconds == pytest.approx(1, **about)
    assert evaluations.training_seconds(connection, training, 30) == pytest.approx(before - 1.8 + 1, **about)
    assert runs.metrics(connection, training, "iteration")[-1]["seconds"] == pytest.approx(1, **about)
    assert watching.curve(connection, training)[-1].images_per_second == pytest.approx(48, rel=0.3)
    assert watching.speeds(connection, training)[-1] > 48 / 65  # not 48 in an hour


def test_the_first_iteration_says_nothing_about_speed_since_machines_get_ready_in_it(connection, tiny):
    training = fill(connection, 1, 5, tiny)
    connection.execute("UPDATE classgan.iterations SET opened_at = opened_at - interval '1 hour' WHERE number = 0")
    assert watching.speeds(connection, training) == pytest.approx([48 / 1.8, 24, 24, 24])


def test_a_training_that_is_over_has_no_speed_any_more(connection, tiny):
    training = fill(connection, 1, 30, tiny)
    assert watching.overview(connection, training).images_per_second > 0
    connection.execute("UPDATE classgan.trainings SET state = 'succeeded'")
    assert watching.overview(connection, training).images_per_second == 0
    assert ledger.overview(connection, "faces").images_per_second == 0
    assert metrics.read(connection).trainings[0].images_per_second == 0
