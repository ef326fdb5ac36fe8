"""What the database holds is what the code says: tables, words, functions, rights."""

from importlib import import_module

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, pool

from gan_core.store.coordinator import evaluations, trainings
from gan_core.store.migrate import add_student, function_files, migrate
from gan_core.store.schema import EXTERNAL, SCHEMA, metadata
from gan_core.units import TrainingState, UnitState, Verdict


@pytest.fixture
def student_connection(database, connection):
    """A student's own connection."""
    add_student(connection, "ada")
    with psycopg.connect(database.replace("//instructor@", "//ada@"), autocommit=True) as theirs:
        yield theirs


def test_the_migrations_build_exactly_the_declared_tables(database):
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database), poolclass=pool.NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "include_schemas": True,
                "version_table_schema": SCHEMA,
                "compare_server_default": True,
                "include_name": lambda name, kind, parents: kind != "schema" or name == SCHEMA,
            },
        )
        assert compare_metadata(context, metadata) == []


@pytest.mark.parametrize(
    ("name", "words"), [("unit_state", UnitState), ("training_state", TrainingState), ("verdict", Verdict)]
)
def test_the_database_knows_the_same_words(connection, name, words):
    found = connection.execute(
        "SELECT array_agg(enumlabel::text ORDER BY enumsortorder) FROM pg_enum JOIN pg_type t ON t.oid = enumtypid WHERE typname = %s",
        (name,),
    ).fetchone()[0]
    assert found == [word.value for word in words]


def test_blobs_are_stored_without_trying_to_compress_them(connection):
    for table, column in EXTERNAL:
        storage = connection.execute(
            "SELECT attstorage::text FROM pg_attribute WHERE attrelid = %s::regclass AND attname = %s",
            (f"{SCHEMA}.{table}", column),
        ).fetchone()[0]
        assert storage == "e", table


def test_migrating_again_changes_nothing(database, connection):
    def functions():
        return connection.execute(
            "SELECT oid FROM pg_proc WHERE pronamespace = 'student'::regnamespace ORDER BY oid"
        ).fetchall()

    before = functions()
    migrate(database)
    assert functions() == before


def test_what_version_0_1_called_fid_is_kept_under_another_name(database, connection, tiny):
    """It came from 1,024 samples."""
    training = trainings.create(connection, "old", tiny.model_dump(mode="json")).id
    change = import_module("gan_core.store.migrations.versions.0015_kernel_distance")
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database), poolclass=pool.NullPool)
    with engine.begin() as tables, Operations.context(MigrationContext.configure(tables)):
        change.downgrade()
        tables.exec_driver_sql(
            "INSERT INTO classgan.evaluations (training_id, iteration, images, seconds, took, protocol, frechet, wasserstein,"
            f" diversity, coverage, fid) VALUES ({training}, 3, 9, 1, 1, 'random-conv-1, 1,024 samples', 12, 3, 1, 1, 88)"
        )
        change.upgrade()
    (kept,) = evaluations.of_training(connection, training)
    assert (kept.inception_distance, kept.fid, kept.kid) == (88, None, None)
    assert "Inception distance 88.0 (1,024 samples)" in kept.sentence()


def test_every_function_file_is_installed(connection):
    """Each file explains itself in its first line and says who calls it in the second."""
    for name, text in function_files():
        first, second = text.splitlines()[:2]
        assert first.startswith("-- "), name
        assert second.startswith("-- "), name
    wanted = sum(text.count("CREATE FUNCTION") for _, text in function_files())
    found = connection.execute(
        "SELECT count(*) FROM pg_proc WHERE pronamespace IN ('student'::regnamespace, 'classgan'::regnamespace)",
    ).fetchone()[0]
    assert found == wanted


def test_a_student_reaches_no_table_at_all(connection, student_connection):
    relations = connection.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = 'classgan' AND c.relkind IN ('r', 'v', 'S', 'm')",
    ).fetchall()
    assert len(relations) > 10
    for schema, relation in relations:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            student_connection.execute(f"SELECT * FROM {schema}.{relation}")


def test_definer_functions_have_a_fixed_search_path(connection):
    """Without one, a caller could slip in tables and functions of their own."""
    loose = connection.execute(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'student'::regnamespace"
        " AND (NOT prosecdef OR NOT coalesce(proconfig::text LIKE '%%search_path=classgan, pg_temp%%', false))",
    ).fetchall()
    assert loose == []


def test_a_login_that_is_no_student_is_told_so(database, connection):
    connection.execute("DROP ROLE IF EXISTS stranger")
    connection.execute("CREATE ROLE stranger LOGIN IN ROLE classgan_student")
    with (
        psycopg.connect(database.replace("//instructor@", "//stranger@"), autocommit=True) as theirs,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="not a student of this class"),
    ):
        theirs.execute("SELECT * FROM student.my_credit()")
