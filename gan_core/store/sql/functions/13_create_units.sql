-- Opens an iteration with its units, keeps the plan that it goes by, and tells the waiting workers.
-- Called by the coordinator; done once, it can be repeated without harm. The units come as one array a column.
CREATE FUNCTION classgan.create_units(
    p_training bigint, p_iteration integer, p_quorum bigint, p_position bigint, p_target_seconds float,
    p_epochs integer[], p_seeds bigint[], p_sizes integer[], p_indices integer[], p_reaches integer[], p_positions bigint[], p_is_boxed boolean
) RETURNS void
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    INSERT INTO iterations (training_id, number, quorum, position, target_seconds, plan_version, closes_at)
    SELECT p_training, p_iteration, p_quorum, p_position, p_target_seconds, plan_version, CASE WHEN p_is_boxed THEN now() + make_interval(secs => p_target_seconds) END
    FROM trainings WHERE id = p_training
    ON CONFLICT DO NOTHING;

    INSERT INTO plans (training_id, version, plan) SELECT id, plan_version, plan FROM trainings WHERE id = p_training
    ON CONFLICT DO NOTHING;

    -- SQL has no ragged arrays: all indices come in one row, and each unit takes its slice of it.
    INSERT INTO units (training_id, iteration, ordinal, epoch, position, seed, images, indices, reach)
    SELECT p_training, p_iteration, (n - 1)::integer, epoch, position, seed, size, p_indices[before + 1 : before + size], reach
    FROM (
        SELECT n, epoch, position, seed, size, reach, (sum(size) OVER (ORDER BY n) - size)::integer AS before
        FROM unnest(p_epochs, p_positions, p_seeds, p_sizes, p_reaches) WITH ORDINALITY AS u (epoch, position, seed, size, reach, n)
    ) AS cut
    ON CONFLICT DO NOTHING;

    SELECT pg_notify('classgan_work', '');
$$;

-- Seconds until an iteration closes, whoever is still computing; NULL where it waits for its images.
-- Called by a claim, and by a submit.
CREATE FUNCTION classgan.seconds_left(p_training bigint, p_iteration integer) RETURNS float
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT extract(epoch FROM closes_at - clock_timestamp())::float FROM iterations WHERE training_id = p_training AND number = p_iteration
$$;

-- How long an iteration's leases shall take, in seconds.
-- Called by a claim, for leases and backups, and when the iteration closes.
CREATE FUNCTION classgan.planned_seconds(p_training bigint, p_iteration integer) RETURNS float
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT coalesce(nullif(i.target_seconds, 0), nullif(t.plan->>'target_seconds', 'auto')::float, 10)
    FROM trainings AS t LEFT JOIN iterations AS i ON i.training_id = t.id AND i.number = p_iteration WHERE t.id = p_training
$$;

-- Whether units of an iteration that open now can be claimed. Just before its end a round hands nothing out, and each that is
-- woken asks: of 120 machines that gave something back then, all were, 120 times.
-- Called wherever units open again, before the waiting workers are told.
CREATE FUNCTION classgan.hands_out(p_training bigint, p_iteration integer) RETURNS boolean
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT coalesce(classgan.seconds_left(p_training, p_iteration) >= classgan.planned_seconds(p_training, p_iteration) / 8, true)
$$;
