-- Leases the next units of a running training to a worker; no rows when there is nothing to do.
-- Called by a worker asking for work.
CREATE FUNCTION student.claim(p_worker bigint, p_boot uuid)
RETURNS TABLE (
    lease_id bigint, leased_until timestamptz, training_id bigint, iteration integer,
    ordinal integer, epoch integer, indices integer[], seed bigint
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
#variable_conflict use_column
DECLARE
    chosen trainings%ROWTYPE;
    speed double precision;
    want integer;
    lease bigint;
    until timestamptz;
BEGIN
    PERFORM student.require_worker(p_worker);
    PERFORM classgan.expire_leases();
    UPDATE workers SET last_seen = now() WHERE id = p_worker RETURNING images_per_second INTO speed;

    SELECT t.* INTO chosen FROM trainings AS t, LATERAL (  -- in the index's order: finds the first without a scan
        SELECT FROM units AS u WHERE u.training_id = t.id AND u.iteration = t.iteration AND u.state = 'open'
        ORDER BY u.training_id, u.iteration, u.ordinal LIMIT 1
    ) AS something_open
    WHERE t.state = 'running' ORDER BY t.id LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    -- As many units as keep this machine busy for the plan's target time, so that slow and fast ones finish together.
    want := least((chosen.plan->>'max_units_per_lease')::integer, greatest(1, floor(
        coalesce(speed, 0) * (chosen.plan->>'target_seconds')::float / (chosen.plan->>'images_per_unit')::float)::integer));
    IF want > 1 THEN  -- but never more than a fair share of what is left: the others are waiting too, and who is first takes the rest
        want := least(want, greatest(1, floor(
            (SELECT count(*) FROM units AS u WHERE u.training_id = chosen.id AND u.iteration = chosen.iteration AND u.state = 'open')::float
            / greatest(1, (SELECT count(*) FROM workers WHERE last_seen > now() - interval '1 minute'))
        )::integer));
    END IF;

    INSERT INTO leases (training_id, iteration, worker_id, boot_id, units, images, first_ordinal, leased_until)
    VALUES (chosen.id, chosen.iteration, p_worker, p_boot, 0, 0, 0, now() + make_interval(secs => (chosen.plan->>'lease_seconds')::float))
    RETURNING id, leases.leased_until INTO lease, until;

    RETURN QUERY
    WITH candidate AS (    -- the lowest first: sums are built in this order. SKIP LOCKED: two workers never wait for each other
        SELECT u.id FROM units AS u
        WHERE u.training_id = chosen.id AND u.iteration = chosen.iteration AND u.state = 'open'
        ORDER BY u.ordinal LIMIT want FOR UPDATE SKIP LOCKED
    ), claimed AS (
        UPDATE units AS u SET state = 'leased', attempts = u.attempts + 1, lease_id = lease
        FROM candidate WHERE u.id = candidate.id
        RETURNING u.ordinal, u.epoch, u.indices, u.images, u.seed
    ), counted AS (
        UPDATE leases SET units = c.units, images = c.images, first_ordinal = c.first
        FROM (SELECT count(*) AS units, sum(images) AS images, min(ordinal) AS first FROM claimed) AS c
        WHERE leases.id = lease AND c.units > 0
    )
    SELECT lease, until, chosen.id, chosen.iteration, c.ordinal, c.epoch, c.indices, c.seed FROM claimed AS c ORDER BY c.ordinal;

    IF NOT FOUND THEN      -- others were faster between the look and the claim
        DELETE FROM leases WHERE id = lease;
    END IF;
END $$;
