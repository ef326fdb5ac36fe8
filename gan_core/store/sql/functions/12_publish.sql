-- Closes an iteration and announces the next weights: all of it or nothing.
-- Called by the coordinator that leads. With a reason in p_refused the contributions are taken back and the weights are the old ones.
CREATE FUNCTION classgan.publish(
    p_training bigint, p_term integer, p_iteration integer, p_included bigint[], p_images bigint, p_position bigint,
    p_weights bytea, p_change bytea, p_keep integer, p_refused text
) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
DECLARE
    credit boolean;
    now_is training_state;
BEGIN
    -- Locked in this order everywhere: lease, units, worker. A submit that holds them commits before this goes on, one
    -- that comes later finds its units stale.
    WITH ended AS (
        UPDATE leases SET ended_at = now(), outcome = 'the iteration closed'
        WHERE training_id = p_training AND iteration = p_iteration AND ended_at IS NULL AND second_of IS NULL
    ), slow AS (           -- not done in more than the planned time: it is no faster than that. Whoever is locked is left for the next time
        SELECT w.id, l.images / extract(epoch FROM coalesce(l.ended_at, now()) - l.claimed_at) AS at_most
        FROM leases AS l JOIN workers AS w ON w.id = l.worker_id
        WHERE l.training_id = p_training AND l.iteration = p_iteration AND l.second_of IS NULL AND (l.ended_at IS NULL OR l.outcome = 'another answer came first')
          AND coalesce(l.ended_at, now()) - l.claimed_at > make_interval(secs => classgan.planned_seconds(p_training, p_iteration))
        FOR UPDATE OF w SKIP LOCKED
    )
    UPDATE workers SET images_per_second = least(images_per_second, at_most) FROM slow WHERE workers.id = slow.id;

    UPDATE units SET state = 'stale'
    WHERE training_id = p_training AND iteration = p_iteration AND state IN ('open', 'leased');

    UPDATE trainings SET iteration = p_iteration + 1, images = p_images, position = p_position,
        message = CASE state WHEN 'running' THEN '' ELSE message END, updated_at = now()
    WHERE id = p_training AND iteration = p_iteration AND term = p_term
    RETURNING (plan->>'credit_late')::boolean, state INTO credit, now_is;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'training % is no longer at iteration % of term %: another coordinator has moved it on', p_training, p_iteration, p_term
            USING ERRCODE = 'CG001';
    END IF;

    -- Accepted after the coordinator had counted, or led to nothing: never averaged. The work was done all the same. What led to
    -- nothing was in time: it keeps its credit, and so counts against nobody.
    WITH missed AS (
        UPDATE contributions SET verdict = CASE p_refused WHEN '' THEN 'late'::verdict ELSE 'refused' END, credited = credited AND (credit OR p_refused <> ''),
            reason = CASE p_refused WHEN '' THEN format('iteration %s closed before this answer came', p_iteration) ELSE p_refused END
        WHERE training_id = p_training AND iteration = p_iteration AND verdict = 'accepted' AND id <> ALL (p_included)
        RETURNING id, worker_id, first_ordinal
    ), dropped AS (
        DELETE FROM gradients USING missed WHERE contribution_id = missed.id
    ), noted AS (
        INSERT INTO events (training_id, iteration, kind, text)
        SELECT p_training, p_iteration, 'late', format('An answer of %s for unit %s of iteration %s did not enter the model: the iteration closed just then.',
            classgan.called(worker_id), first_ordinal, p_iteration)
        FROM missed WHERE p_refused = ''
    )
    UPDATE units SET state = 'stale', contribution_id = NULL FROM missed WHERE contribution_id = missed.id;

    UPDATE contributions AS c SET slices = (  -- units go after a while; a replay finds here what it was computed from
        SELECT jsonb_agg(jsonb_build_array(u.position, u.images, u.seed) ORDER BY u.ordinal) FROM units AS u WHERE u.contribution_id = c.id)
    WHERE c.id = ANY (p_included);

    UPDATE iterations SET closed_at = now(), images = c.images, contributions = c.count, workers = c.workers,
        g_loss = c.g_loss, d_loss = c.d_loss, d_real_accuracy = c.d_real_accuracy, d_fake_accuracy = c.d_fake_accuracy
    FROM (
        SELECT coalesce(sum(images), 0) AS images, count(*) AS count, count(DISTINCT worker_id) AS workers,
            sum(g_loss * images) / sum(images) AS g_loss, sum(d_loss * images) / sum(images) AS d_loss,
            sum(d_real_accuracy * images) / sum(images) AS d_real_accuracy,
            sum(d_fake_accuracy * images) / sum(images) AS d_fake_accuracy
        FROM contributions WHERE id = ANY (p_included)
    ) AS c
    WHERE training_id = p_training AND number = p_iteration;

    IF now_is IN ('paused', 'cancelled') THEN  -- while it was under way: the run, and the sentence about it, count it too
        UPDATE runs SET ended_at = now(), last_iteration = p_iteration + 1
        WHERE training_id = p_training AND number = (SELECT max(number) FROM runs WHERE training_id = p_training);
        UPDATE events SET iteration = p_iteration + 1
        WHERE id = (SELECT max(id) FROM events WHERE training_id = p_training AND kind = now_is::text AND iteration = p_iteration);
    END IF;

    INSERT INTO weights (training_id, iteration, payload, change) VALUES (p_training, p_iteration + 1, p_weights, p_change);
    PERFORM classgan.drop_old_weights(p_training, p_keep);
END $$;
