-- Chooses, once its payload is in, whether a contribution is checked, and keeps what that takes.
-- Called by student.submit. Until then nobody knows: not even whoever sets the seed of random() in their own session.
-- The first ten of a student are checked, then one in as many as were valid in a row; whatever came suspiciously fast; and
-- whatever two machines computed, to be compared by their trails.
CREATE FUNCTION classgan.choose_check(p_contribution bigint, p_lease bigint, p_payload bytea, p_trail bytea) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
DECLARE
    lease leases%ROWTYPE;
    plan jsonb;  -- that it was handed out with
    worker workers%ROWTYPE;
    streak integer;
    chance float := classgan.chance();
    paired boolean;
    speed float;
    is_fast boolean;
    busiest bigint;
    waiting bigint;
BEGIN
    SELECT * INTO lease FROM leases WHERE id = p_lease;
    plan := classgan.plan_of(lease.training_id, lease.plan_version);
    IF coalesce(plan->>'checks', 'sampled') = 'off' THEN
        RETURN;
    END IF;
    SELECT * INTO worker FROM workers WHERE id = lease.worker_id;
    SELECT s.valid_streak INTO streak FROM students AS s WHERE s.id = worker.student_id;
    -- From claim to answer, by this clock: a device can't have been slower than that. Compared with the fastest that this very
    -- machine has been shown to work honestly, so a fast one never trips: its first results, all checked, were fast too. While
    -- those are being checked, nothing is said: the very first one may have been slow, because the machine still prepared itself.
    speed := lease.images / greatest(0.001, extract(epoch FROM clock_timestamp() - lease.claimed_at));
    is_fast := streak >= 10 AND speed > 3 * worker.proven_speed;
    paired := lease.second_of IS NOT NULL
        OR EXISTS (SELECT FROM leases AS s WHERE s.training_id = lease.training_id AND s.iteration = lease.iteration
                   AND s.second_of = lease.id AND (s.ended_at IS NULL OR s.outcome = 'second'));
    IF is_fast THEN  -- said once, until a check of it is done: it may only have been busy when it was checked before
        IF NOT EXISTS (SELECT FROM checks AS k WHERE k.worker_id = worker.id AND k.checked_at IS NULL
                       AND k.images_per_second > 3 * worker.proven_speed) THEN
            PERFORM classgan.note(lease.training_id, lease.iteration, 'fast', format(
                '%s computed iteration %s at %s images/s; in a checked contribution it reached %s. Contributions as fast as this one are checked, as time allows.',
                classgan.called(worker.id), lease.iteration, round(speed), round(worker.proven_speed)));
        END IF;
    ELSIF NOT paired AND streak >= 10 AND chance >= 1.0 / streak THEN
        RETURN;
    ELSIF p_trail IS NOT NULL AND classgan.seconds_left(lease.training_id, lease.iteration) IS NOT NULL THEN
        paired := paired OR classgan.wants_pairs(lease.training_id);  -- another machine will be given the same units
    END IF;
    -- Bounded by second_opinion(). Without a readable trail nothing can be compared: it is recomputed, while few of those wait.
    p_trail := CASE WHEN octet_length(p_trail) BETWEEN 1 AND 262144 THEN p_trail END;
    IF paired AND (p_trail IS NOT NULL OR classgan.disputed_checks(lease.training_id) < 16) THEN
        INSERT INTO checks (contribution_id, training_id, iteration, student_id, worker_id, plan, ordinals, images_per_second, payload, trail, disputed)
        SELECT p_contribution, lease.training_id, lease.iteration, worker.student_id, worker.id, plan, ordinals, speed, p_payload, p_trail, p_trail IS NULL
        FROM (SELECT coalesce(lease.ordinals, array_agg(u.ordinal ORDER BY u.ordinal)) AS ordinals, count(*)
              FROM units AS u WHERE u.lease_id = lease.units_of) AS its
        WHERE lease.ordinals IS NOT NULL OR its.count = lease.units;
        RETURN;
    END IF;
    -- At most 16 wait in a training, and one more for each submit at the same moment. Who hands in more than anybody can check displaces nobody but themselves.
    waiting := classgan.waiting_checks(lease.training_id);
    IF waiting >= 16 THEN
        SELECT student_id INTO busiest FROM checks WHERE training_id = lease.training_id AND checked_at IS NULL AND trail IS NULL AND NOT disputed
        GROUP BY student_id ORDER BY count(*) DESC, student_id = worker.student_id DESC LIMIT 1;
        DELETE FROM checks WHERE contribution_id IN (  -- one that is being recorded right now is locked: leave it alone
            SELECT contribution_id FROM checks WHERE training_id = lease.training_id AND checked_at IS NULL AND student_id = busiest AND trail IS NULL AND NOT disputed
            ORDER BY contribution_id LIMIT waiting - 15 FOR UPDATE SKIP LOCKED);
    END IF;
    INSERT INTO checks (contribution_id, training_id, iteration, student_id, worker_id, plan, ordinals, images_per_second, payload)
    SELECT p_contribution, lease.training_id, lease.iteration, worker.student_id, worker.id, plan, array_agg(u.ordinal ORDER BY u.ordinal), speed, p_payload
    FROM units AS u WHERE u.lease_id = lease.units_of HAVING count(*) = lease.units;
END $$;

-- How many contributions wait for the instructor's machine to recompute them because chance chose them.
CREATE FUNCTION classgan.waiting_checks(p_training bigint) RETURNS bigint
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT count(*) FROM checks WHERE training_id = p_training AND checked_at IS NULL AND trail IS NULL AND NOT disputed
$$;

-- How many wait because two machines said different things: 16 at most, and further ones prove nothing.
CREATE FUNCTION classgan.disputed_checks(p_training bigint) RETURNS bigint
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT count(*) FROM checks WHERE training_id = p_training AND checked_at IS NULL AND disputed
$$;

-- Some units of an iteration as a lease has them, with their images one after the other.
CREATE FUNCTION classgan.units_again(p_training bigint, p_iteration integer, p_ordinals integer[])
RETURNS TABLE (ordinals integer[], epochs integer[], seeds bigint[], sizes integer[], indices integer[])
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT array_agg(u.ordinal ORDER BY u.ordinal), array_agg(u.epoch ORDER BY u.ordinal), array_agg(u.seed ORDER BY u.ordinal),
        array_agg(u.images ORDER BY u.ordinal), (
            SELECT array_agg(i.index ORDER BY v.ordinal, i.place) FROM units AS v, unnest(v.indices) WITH ORDINALITY AS i (index, place)
            WHERE v.training_id = p_training AND v.iteration = p_iteration AND v.ordinal = ANY (p_ordinals))
    FROM units AS u WHERE u.training_id = p_training AND u.iteration = p_iteration AND u.ordinal = ANY (p_ordinals)
$$;

-- Two contributions of different students to the same units, to be compared by their trails; no rows when there are none.
-- Called by the checker before it recomputes anything.
CREATE FUNCTION classgan.next_pair(p_training bigint) RETURNS TABLE (
    contribution_ids bigint[], workers text[], iteration integer, plan jsonb, payloads bytea[], trails bytea[],
    ordinals integer[], epochs integer[], seeds bigint[], sizes integer[], indices integer[]
)
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT ARRAY[a.contribution_id, b.contribution_id], ARRAY[classgan.called(a.worker_id), classgan.called(b.worker_id)],
        a.iteration, a.plan, ARRAY[a.payload, b.payload], ARRAY[a.trail, b.trail], its.*
    FROM checks AS a JOIN checks AS b ON b.training_id = a.training_id AND b.iteration = a.iteration AND b.ordinals = a.ordinals
        AND b.plan = a.plan AND b.contribution_id > a.contribution_id AND b.student_id <> a.student_id
    CROSS JOIN LATERAL classgan.units_again(a.training_id, a.iteration, a.ordinals) AS its
    WHERE a.training_id = p_training AND a.checked_at IS NULL AND a.trail IS NOT NULL AND b.checked_at IS NULL AND b.trail IS NOT NULL
      AND cardinality(its.ordinals) = cardinality(a.ordinals)
    ORDER BY a.contribution_id LIMIT 1
$$;

-- Whether a training has more to check than the instructor's machine manages, so that students' machines are compared.
-- Called by a claim, and when a contribution is chosen to be checked.
CREATE FUNCTION classgan.wants_pairs(p_training bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT classgan.waiting_checks(p_training) >= 8  -- fewer, and the instructor's machine manages by itself
        -- Students online: of fewer, two who lie together would meet too often.
        AND (SELECT count(DISTINCT student_id) FROM workers WHERE last_seen > now() - interval '20 seconds') >= 8
        -- Pairs at the same time: each keeps two payloads.
        AND (SELECT count(*) FROM leases AS l JOIN trainings AS t ON t.id = l.training_id AND l.iteration > t.iteration - 10
             WHERE l.training_id = p_training AND l.second_of IS NOT NULL AND l.ended_at IS NULL)
            + (SELECT count(*) FROM checks AS k WHERE k.training_id = p_training AND k.checked_at IS NULL AND k.trail IS NOT NULL) / 2 < 16
$$;

-- Whether a contribution to a round that closed in time waits for another machine to take the same units; not for ever.
CREATE FUNCTION classgan.awaits_taker(p_contribution bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM checks AS k JOIN contributions AS c ON c.id = k.contribution_id JOIN leases AS l ON l.id = c.lease_id
        JOIN trainings AS t ON t.id = k.training_id AND t.iteration <= k.iteration + 2
        WHERE k.contribution_id = p_contribution AND k.checked_at IS NULL AND k.trail IS NOT NULL AND NOT k.disputed AND l.second_of IS NULL
          AND classgan.seconds_left(k.training_id, k.iteration) IS NOT NULL
          AND NOT EXISTS (SELECT FROM leases AS other WHERE other.training_id = l.training_id AND other.iteration = l.iteration AND other.second_of = l.id))
$$;

-- Whether the other answer to its units may still come.
CREATE FUNCTION classgan.awaits_another(p_contribution bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM contributions AS c JOIN leases AS mine ON mine.id = c.lease_id
        JOIN leases AS other ON other.training_id = c.training_id AND other.iteration = c.iteration AND (other.second_of = mine.id OR other.id = mine.second_of)
        WHERE c.id = p_contribution AND other.ended_at IS NULL AND other.leased_until > now())
    OR classgan.awaits_taker(p_contribution)
$$;

-- The contribution of a training that waits longest for its check, with all that it takes to recompute it.
-- Called by the checker. Those come first of which two machines say different things. What can't be recomputed any more is let go unchecked.
CREATE FUNCTION classgan.next_check(p_training bigint) RETURNS TABLE (
    contribution_id bigint, worker text, iteration integer, plan jsonb, data_fingerprint text, data_images bigint,
    payload bytea, weights bytea, ordinals integer[], epochs integer[], seeds bigint[], sizes integer[], indices integer[]
)
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
#variable_conflict use_column
BEGIN
    WITH gone AS (
        DELETE FROM checks AS k WHERE k.training_id = p_training AND k.checked_at IS NULL AND (
            NOT EXISTS (SELECT FROM weights AS w WHERE w.training_id = p_training AND w.iteration = k.iteration)
            OR cardinality(k.ordinals) > (
                SELECT count(*) FROM units AS u WHERE u.training_id = p_training AND u.iteration = k.iteration AND u.ordinal = ANY (k.ordinals)))
        RETURNING k.contribution_id
    )   -- a late one entered nothing and was looked at by nobody
    UPDATE contributions AS c SET credited = false FROM gone WHERE c.id = gone.contribution_id AND c.verdict IN ('late', 'second');
    RETURN QUERY
    SELECT k.contribution_id, classgan.called(k.worker_id), k.iteration, k.plan, t.data_fingerprint, t.data_images, k.payload, w.payload, its.*
    FROM checks AS k JOIN trainings AS t ON t.id = k.training_id
    JOIN weights AS w ON w.training_id = k.training_id AND w.iteration = k.iteration
    CROSS JOIN LATERAL classgan.units_again(k.training_id, k.iteration, k.ordinals) AS its
    WHERE k.training_id = p_training AND k.checked_at IS NULL AND (k.trail IS NULL OR NOT classgan.awaits_another(k.contribution_id))
    ORDER BY NOT k.disputed, k.contribution_id LIMIT 1;
END $$;

-- Writes down what a check said. Valid lengthens the student's streak; invalid takes the credit and starts it anew.
-- Called by the checker. Done once, it can be repeated without harm. Two invalid ones within a day suspend the login.
-- The verdict stays: what has entered the weights has entered them, and a repetition after a crash must find it.
CREATE FUNCTION classgan.record_check(p_contribution bigint, p_valid boolean, p_reason text, p_figures jsonb, p_seconds float, p_keep integer) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
DECLARE
    checked checks%ROWTYPE;
    lately bigint;
    is_out boolean;
BEGIN
    UPDATE checks SET checked_at = now(), valid = p_valid, reason = p_reason, figures = p_figures, seconds = p_seconds, payload = NULL, plan = NULL, trail = NULL
    WHERE contribution_id = p_contribution AND checked_at IS NULL RETURNING * INTO checked;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM classgan.drop_old_weights(checked.training_id, p_keep);
    IF p_valid THEN
        UPDATE students SET valid_streak = valid_streak + 1 WHERE id = checked.student_id;
        UPDATE workers SET proven_speed = greatest(proven_speed, checked.images_per_second) WHERE id = checked.worker_id;
        RETURN;
    END IF;
    UPDATE students SET valid_streak = 0 WHERE id = checked.student_id RETURNING suspended <> '' INTO is_out;
    PERFORM classgan.note(checked.training_id, checked.iteration, 'invalid', format(
        'A contribution of %s to iteration %s was recomputed and is invalid, its credit is lost: %s.',
        classgan.called(checked.worker_id), checked.iteration, p_reason));
    SELECT count(*) INTO lately FROM checks
    WHERE student_id = checked.student_id AND NOT valid AND checked_at > now() - interval '1 day';
    IF lately >= 2 AND NOT is_out THEN  -- before the rest, since it locks leases and units
        PERFORM classgan.suspend(checked.student_id, format(
            '%s contributions within a day were recomputed and are invalid, the last one because: %s', lately, p_reason));
    END IF;
    UPDATE contributions SET credited = false, reason = left('invalid: ' || p_reason, 500) WHERE id = p_contribution;
    IF lately < 2 THEN
        UPDATE workers SET message = left(format('Your work for iteration %s was recomputed and is invalid: %s. It earns nothing. '
            'One more within a day suspends your login.', checked.iteration, p_reason), 500)
        WHERE id = checked.worker_id;
    END IF;
END $$;

-- Drops weights that nobody computes from any more: all but the last few, and those that a check waits for.
-- Called when an iteration closes, when a check is recorded, and by housekeeping.
CREATE FUNCTION classgan.drop_old_weights(p_training bigint, p_keep integer) RETURNS void
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    UPDATE leases SET ended_at = now(), outcome = 'the iteration closed' FROM trainings AS t  -- second opinions go on until then
    WHERE t.id = p_training AND leases.training_id = p_training AND second_of IS NOT NULL AND leases.ended_at IS NULL AND leases.iteration <= t.iteration - p_keep;
    DELETE FROM weights AS w USING trainings AS t
    WHERE t.id = p_training AND w.training_id = p_training AND w.iteration <= t.iteration - p_keep
      AND NOT EXISTS (SELECT FROM checks AS k WHERE k.training_id = p_training AND k.iteration = w.iteration AND k.checked_at IS NULL)
$$;
