-- Leases the next units of a running training to a worker; no rows when there is nothing to do.
-- Called by a worker asking for work. Where the data is fetched in shards, units go to a machine that has their images:
-- it says how many of which training it has, from the first one on.
CREATE FUNCTION student.claim(p_worker bigint, p_boot uuid, p_training bigint DEFAULT 0, p_images bigint DEFAULT 0)
RETURNS TABLE (
    lease_id bigint, leased_until timestamptz, training_id bigint, iteration integer, plan_version integer,
    ordinal integer, epoch integer, indices integer[], seed bigint, seconds_left float
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
#variable_conflict use_column
DECLARE
    chosen trainings%ROWTYPE;
    placed bigint;
    drained text;
    speed double precision;
    room integer;  -- of this machine, in MB
    want integer;
    have bigint;
    lease bigint;
    held integer;
    waiting integer;
    their_speed double precision;
    left_open integer;
    wasted integer;
    planned float;
    time_left float;  -- until the round closes; NULL: it waits for its images
    until timestamptz;
BEGIN
    PERFORM student.require_worker(p_worker);
    PERFORM classgan.expire_leases();
    SELECT w.images_per_second, w.drained, t.id, classgan.room_mb(w.device, w.hardware) INTO speed, drained, placed, room FROM workers AS w
    LEFT JOIN placements AS p ON p.worker_id = w.id AND p.ended_at IS NULL
    LEFT JOIN trainings AS t ON t.id = p.training_id AND t.state = 'running' WHERE w.id = p_worker;
    -- One that is computed, one that is uploaded, and one for a slow answer: more would only be hoarded.
    -- Counted by the machine, not by its start: that is the caller's to choose.
    SELECT count(*) FILTER (WHERE ended_at IS NULL),
        count(*) FILTER (WHERE ended_at > now() - interval '10 minutes' AND outcome IN ('given back', 'refused'))
            + count(*) FILTER (WHERE ended_at > now() - interval '10 minutes' AND outcome = 'spoiled') / 10  -- often not the machine's fault
    INTO held, wasted FROM leases WHERE worker_id = p_worker;
    IF drained <> '' OR held >= 3 THEN
        RETURN;
    END IF;
    IF wasted >= 10 THEN  -- each of them woke everybody and stands in the history
        UPDATE workers SET last_seen = now(), message = format('%s leases were given back unused within ten minutes: this machine gets no more until those are over.', wasted)
        WHERE id = p_worker;
        RETURN;
    END IF;

    -- The training that the queue placed it on; before it has looked, the first that takes anybody.
    SELECT t.* INTO chosen FROM trainings AS t, LATERAL (  -- in the index's order: finds the first without a scan
        SELECT FROM units AS u WHERE u.training_id = t.id AND u.iteration = t.iteration AND u.state = 'open'
            AND u.reach <= CASE WHEN t.id = p_training THEN p_images ELSE 0 END
        ORDER BY u.training_id, u.iteration, u.ordinal LIMIT 1
    ) AS something_open
    WHERE t.state = 'running' AND (t.id = placed OR (placed IS NULL AND classgan.takes_anybody(t))) AND t.step_mb <= coalesce(room, t.step_mb) ORDER BY t.id LIMIT 1;
    IF NOT FOUND THEN
        RETURN QUERY SELECT * FROM classgan.back_up(p_worker, p_boot, p_training, p_images);
        UPDATE workers SET last_seen = now(), message = coalesce((  -- of what runs, not even the smallest fits: people read that
            SELECT format('One step of %s takes %s MB of memory, and this machine has room for %s MB: it waits for a training that fits.', least.name, least.step_mb, room)
            FROM (SELECT name, step_mb FROM trainings WHERE state = 'running' ORDER BY step_mb LIMIT 1) AS least WHERE least.step_mb > room
        ), message) WHERE id = p_worker;
        RETURN;
    END IF;

    have := CASE WHEN chosen.id = p_training THEN p_images ELSE 0 END;

    planned := classgan.planned_seconds(chosen.id, chosen.iteration);
    time_left := classgan.seconds_left(chosen.id, chosen.iteration);
    IF time_left < planned / 8 THEN  -- a few steps, for which the weights would have to be fetched: the next round is near
        UPDATE workers SET last_seen = now() WHERE id = p_worker;
        RETURN;
    END IF;
    -- As many units as keep this machine busy for the target time, so that slow and fast ones finish together. Where the round
    -- closes in time, some more: what it doesn't reach by then goes back.
    want := CASE WHEN time_left IS NULL THEN floor(speed * planned / (chosen.plan->>'images_per_unit')::float)
        ELSE ceil(1.2 * speed * time_left / (chosen.plan->>'images_per_unit')::float) END;
    want := least((chosen.plan->>'max_units_per_lease')::integer, greatest(1, want));
    RETURN QUERY SELECT * FROM classgan.second_opinion(p_worker, p_boot, chosen.id, have, want);
    IF FOUND THEN
        UPDATE workers SET last_seen = now() WHERE id = p_worker;
        RETURN;
    END IF;
    IF want > 1 OR held > 0 THEN
        -- Whoever is there for this training and holds nothing waits for a unit, too.
        SELECT count(*), coalesce(sum(coalesce(w.images_per_second, speed)), 0) INTO waiting, their_speed
        FROM workers AS w LEFT JOIN placements AS p ON p.worker_id = w.id AND p.ended_at IS NULL
        WHERE w.id <> p_worker AND w.drained = '' AND w.last_seen > now() - interval '20 seconds'
          AND (p.training_id = chosen.id OR (p.id IS NULL AND classgan.takes_anybody(chosen)))
          AND NOT EXISTS (SELECT FROM leases AS l WHERE l.worker_id = w.id AND l.ended_at IS NULL);
        left_open := (SELECT count(*) FROM units AS u WHERE u.training_id = chosen.id AND u.iteration = chosen.iteration AND u.state = 'open');
        IF held > 0 AND left_open <= waiting THEN  -- it still uploads: the others come first
            UPDATE workers SET last_seen = now() WHERE id = p_worker;
            RETURN;
        END IF;
        -- The nearest to its share by speed, so that all are done together; and nobody is idle while another holds two.
        want := least(want, greatest(1, least(left_open - waiting, round(left_open * speed / (speed + their_speed))))::integer);
    END IF;

    INSERT INTO leases (training_id, iteration, worker_id, boot_id, units, images, first_ordinal, units_of, plan_version, leased_until)
    VALUES (chosen.id, chosen.iteration, p_worker, p_boot, 0, 0, 0, 0, chosen.plan_version, now() + make_interval(secs => (chosen.plan->>'lease_seconds')::float))
    RETURNING id, leases.leased_until INTO lease, until;

    RETURN QUERY
    WITH candidate AS (    -- the lowest first: sums are built in this order. SKIP LOCKED: two workers never wait for each other
        SELECT u.id, u.lease_id AS before FROM units AS u
        WHERE u.training_id = chosen.id AND u.iteration = chosen.iteration AND u.state = 'open' AND u.reach <= have
        ORDER BY u.ordinal LIMIT want FOR UPDATE SKIP LOCKED
    ), claimed AS (
        UPDATE units AS u SET state = 'leased', attempts = u.attempts + 1, lease_id = lease
        FROM candidate WHERE u.id = candidate.id
        RETURNING u.ordinal, u.epoch, u.indices, u.images, u.seed, candidate.before
    ), counted AS (
        UPDATE leases SET units = c.units, images = c.images, first_ordinal = c.first, units_of = lease
        FROM (SELECT count(*) AS units, sum(images) AS images, min(ordinal) AS first FROM claimed) AS c
        WHERE leases.id = lease AND c.units > 0
    ), noted AS (
        INSERT INTO events (training_id, iteration, kind, text)
        SELECT chosen.id, chosen.iteration, 'again', format('%s took over %s %s of iteration %s from %s.', classgan.called(p_worker),
            CASE count(*) WHEN 1 THEN 'unit' ELSE 'units' END, string_agg(c.ordinal::text, ', ' ORDER BY c.ordinal), chosen.iteration,
            (SELECT string_agg(DISTINCT classgan.called(l.worker_id), ', ') FROM leases AS l WHERE l.id = ANY (array_agg(c.before))))
        FROM claimed AS c WHERE c.before IS NOT NULL HAVING count(*) > 0
    )
    SELECT lease, until, chosen.id, chosen.iteration, chosen.plan_version, c.ordinal, c.epoch, c.indices, c.seed, time_left
    FROM claimed AS c ORDER BY c.ordinal;

    IF NOT FOUND THEN      -- others were faster between the look and the claim
        DELETE FROM leases WHERE id = lease;
    END IF;
    UPDATE workers SET last_seen = now() WHERE id = p_worker;  -- locked in this order everywhere: lease, units, worker
END $$;
