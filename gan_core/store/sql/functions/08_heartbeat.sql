-- Renews the open leases of this start of a worker; returns their ids.
-- Called by a shift's heartbeat thread. A lease that isn't in the answer is lost: computing it further helps nobody.
CREATE FUNCTION student.heartbeat(p_worker bigint, p_boot uuid) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
DECLARE
    alive bigint[];
BEGIN
    PERFORM student.require_worker(p_worker);
    UPDATE leases SET ended_at = now(), outcome = 'another answer came first'
    WHERE worker_id = p_worker AND boot_id = p_boot AND ended_at IS NULL
      AND EXISTS (SELECT FROM units WHERE units.lease_id = leases.units_of AND units.state = 'done');
    WITH renewed AS (
        UPDATE leases SET leased_until = now() + make_interval(secs => (t.plan->>'lease_seconds')::float)
        FROM trainings AS t
        WHERE t.id = leases.training_id AND worker_id = p_worker AND boot_id = p_boot AND ended_at IS NULL
        RETURNING leases.id
    )
    SELECT coalesce(array_agg(id ORDER BY id), '{}') INTO alive FROM renewed;
    UPDATE workers SET last_seen = now() WHERE id = p_worker;  -- locked in this order everywhere: lease, units, worker
    RETURN alive;
END $$;
