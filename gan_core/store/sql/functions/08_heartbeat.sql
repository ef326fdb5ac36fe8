-- Renews the leases of this start of a worker; returns the ids of those it holds.
-- Called by a shift's heartbeat thread. A lease that isn't in the answer is lost: computing it further helps nobody.
CREATE FUNCTION student.heartbeat(p_worker bigint, p_boot uuid) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
DECLARE
    mine bigint[];
    slept leases%ROWTYPE;
BEGIN
    PERFORM student.require_worker(p_worker);
    -- A lease that is being submitted right now is locked, and its worker: a heartbeat waits for nothing, and neither needs it.
    mine := ARRAY(SELECT id FROM leases WHERE worker_id = p_worker AND boot_id = p_boot AND ended_at IS NULL ORDER BY id FOR UPDATE SKIP LOCKED);
    UPDATE leases SET ended_at = now(), outcome = 'another answer came first'
    WHERE id = ANY (mine) AND EXISTS (SELECT FROM units WHERE units.lease_id = leases.units_of AND units.state = 'done');

    -- A machine that slept takes up again what nobody else has taken meanwhile.
    FOR slept IN
        SELECT l.* FROM leases AS l JOIN trainings AS t ON t.id = l.training_id AND t.iteration = l.iteration AND t.state = 'running'
        WHERE l.worker_id = p_worker AND l.boot_id = p_boot AND l.outcome LIKE 'ran out%' AND l.units_of = l.id FOR UPDATE OF l SKIP LOCKED
    LOOP
        IF slept.units = (SELECT count(*) FROM (
            SELECT FROM units AS u WHERE u.lease_id = slept.id AND u.state = 'open' FOR UPDATE SKIP LOCKED) AS locked) THEN
            UPDATE leases SET ended_at = NULL, outcome = '' WHERE id = slept.id;
            UPDATE units SET state = 'leased' WHERE lease_id = slept.id;
            mine := mine || slept.id;
        END IF;
    END LOOP;

    UPDATE leases SET leased_until = now() + make_interval(secs => (t.plan->>'lease_seconds')::float)
    FROM trainings AS t WHERE t.id = leases.training_id AND leases.id = ANY (mine) AND ended_at IS NULL;
    UPDATE workers SET last_seen = now(),  -- locked in this order everywhere: lease, units, worker
        message = CASE WHEN boot_id <> p_boot AND registered_at < now() - interval '10 seconds'  -- an earlier start is alive, too
            THEN 'two programs work under this name: end one of them, or give its machine another name' ELSE message END
    WHERE id = (SELECT id FROM workers WHERE id = p_worker FOR NO KEY UPDATE SKIP LOCKED);
    RETURN ARRAY(SELECT id FROM leases WHERE worker_id = p_worker AND boot_id = p_boot AND ended_at IS NULL ORDER BY id);
END $$;

-- The same for a student that the class server has let in. It writes many of them over one connection, each as a transaction of its
-- own, and needs one way there and back for each: whose it is and with what rights is said here.
-- Called by the class server. Nothing is lost if a crash takes the last half second of renewed leases back.
CREATE FUNCTION classgan.heartbeat(p_login text, p_worker bigint, p_boot uuid) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('classgan.student', p_login, true), set_config('role', 'classgan_student', true), set_config('synchronous_commit', 'off', true);
    RETURN student.heartbeat(p_worker, p_boot);
END $$;
