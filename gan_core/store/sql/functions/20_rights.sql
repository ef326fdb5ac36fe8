-- A student may call the functions of schema `student`, and nothing else.
-- Run last: it covers every function that the files before it made.
REVOKE ALL ON SCHEMA classgan FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA classgan FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA classgan FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA student FROM PUBLIC;
GRANT USAGE ON SCHEMA student TO classgan_student;
GRANT EXECUTE ON FUNCTION
    student.register(text, uuid, text, jsonb, uuid, integer),
    student.change_device(bigint, uuid, bigint, text, text),
    student.claim(bigint, uuid, bigint, bigint),
    student.read_training(bigint, integer),
    student.trainings(),
    student.weights(bigint, integer),
    student.weights_change(bigint, integer),
    student.upload_bytes(bigint, uuid),
    student.submit(bigint, uuid, float, float, float, float, float, bytea, bytea, float),
    student.heartbeat(bigint, uuid),
    student.release(bigint, uuid, text, boolean),
    student.my_credit(),
    student.my_machines(),
    student.leaderboard(),
    student.be_named(boolean)
TO classgan_student;

-- The students' functions run with the rights of a role that nobody can log in as and that may do only what they need:
-- a fault in one of them is not the instructor's password.
GRANT USAGE ON SCHEMA classgan, student TO classgan_owner;
GRANT SELECT ON classgan.students, classgan.trainings, classgan.plans, classgan.iterations, classgan.weights, classgan.ledger, classgan.placements TO classgan_owner;
GRANT UPDATE (named) ON classgan.students TO classgan_owner;  -- lets them lock the row, too
GRANT SELECT, INSERT, UPDATE, DELETE ON classgan.leases TO classgan_owner;
GRANT SELECT, INSERT, UPDATE ON classgan.workers, classgan.contributions TO classgan_owner;
GRANT SELECT, INSERT, UPDATE ON classgan.units TO classgan_owner;
GRANT SELECT, INSERT, UPDATE, DELETE ON classgan.checks TO classgan_owner;
GRANT INSERT ON classgan.gradients, classgan.events TO classgan_owner;
GRANT SELECT (training_id, kind, at, text) ON classgan.events TO classgan_owner;
GRANT EXECUTE ON FUNCTION
    classgan.caller(),
    classgan.note(bigint, integer, text, text),
    classgan.within(float, float, float),
    classgan.plain(text, integer),
    classgan.called(bigint),
    classgan.machine(text, text),
    classgan.require_format(integer),
    classgan.plan_of(bigint, integer),
    classgan.planned_seconds(bigint, integer),
    classgan.seconds_left(bigint, integer),
    classgan.hands_out(bigint, integer),
    classgan.cut_lease(bigint, bigint, integer),
    classgan.is_hopeless(bigint, integer, integer),
    classgan.expire_leases(),
    classgan.takes_anybody(classgan.trainings),
    classgan.room_mb(text, jsonb),
    classgan.amount(jsonb, numeric),
    classgan.choose_check(bigint, bigint, bytea, bytea),
    classgan.chance(),
    classgan.waiting_checks(bigint),
    classgan.disputed_checks(bigint),
    classgan.wants_pairs(bigint),
    classgan.awaits_taker(bigint),
    classgan.second_opinion(bigint, uuid, bigint, bigint, integer),
    classgan.back_up(bigint, uuid, bigint, bigint)
TO classgan_owner;
-- A view's functions run with the rights of whoever reads it.
GRANT EXECUTE ON FUNCTION classgan.public(text), classgan.amount(jsonb, numeric), classgan.machine(text, text), classgan.plain(text, integer) TO classgan_viewer;
GRANT CREATE ON SCHEMA student TO classgan_owner;  -- asked for by ALTER FUNCTION ... OWNER, and taken back below
DO $$ DECLARE f regprocedure; BEGIN
    FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'student'::regnamespace LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO classgan_owner', f);
    END LOOP;
END $$;
REVOKE CREATE ON SCHEMA student FROM classgan_owner;

-- What PostgreSQL lets everybody do, and a class doesn't need: large objects, locks that somebody else waits for, bytes
-- in the log, programs of one's own (which write to the log, too). Only a superuser can close them; where the instructor is none, they stay open.
DO $$ DECLARE f regprocedure; BEGIN
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC;
        FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
            AND (proname ~ '^(lo_|loread$|lowrite$)' OR proname ~ 'advisory_(xact_)?(lock|unlock)' OR proname = 'pg_logical_emit_message') LOOP
            EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
        END LOOP;
    END IF;
END $$;
