-- Leases units that another student's machine computes right now to this one, too, so that both answers can be compared.
-- Where rounds close in time, units that another one has computed: only then is it known how many images those are.
-- Called by a claim. Neither machine is told. The shorter the streak of either student, the likelier: within the first ten always.
-- No rows when there is nothing to compare.
CREATE FUNCTION classgan.second_opinion(p_worker bigint, p_boot uuid, p_training bigint, p_images bigint, p_most integer)
RETURNS TABLE (
    lease_id bigint, leased_until timestamptz, training_id bigint, iteration integer, plan_version integer,
    ordinal integer, epoch integer, indices integer[], seed bigint, seconds_left float
)
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
#variable_conflict use_column
DECLARE
    chance float := classgan.chance();
    first record;
    these integer[];  -- ordinals of its units
    lease bigint;
    until timestamptz;
BEGIN
    SELECT l.*, k.plan AS its, k.ordinals AS computed INTO first
    FROM checks AS k JOIN contributions AS c ON c.id = k.contribution_id JOIN leases AS l ON l.id = c.lease_id
    JOIN workers AS me ON me.id = p_worker
    WHERE k.training_id = p_training AND k.student_id <> me.student_id AND l.units <= p_most AND classgan.awaits_taker(k.contribution_id)
      AND NOT EXISTS (SELECT FROM units AS u WHERE u.training_id = p_training AND u.iteration = k.iteration AND u.ordinal = ANY (k.ordinals) AND u.reach > p_images)
    ORDER BY k.contribution_id LIMIT 1 FOR UPDATE OF l SKIP LOCKED;
    these := first.computed;
    IF NOT FOUND THEN
        IF NOT classgan.wants_pairs(p_training) THEN
            RETURN;
        END IF;
        SELECT l.*, plan.its INTO first
        FROM trainings AS t JOIN leases AS l ON l.training_id = t.id AND l.iteration = t.iteration
        JOIN workers AS w ON w.id = l.worker_id JOIN students AS theirs ON theirs.id = w.student_id
        JOIN workers AS me ON me.id = p_worker JOIN students AS mine ON mine.id = me.student_id
        CROSS JOIN LATERAL (SELECT classgan.plan_of(l.training_id, l.plan_version) AS its) AS plan
        WHERE t.id = p_training AND l.ended_at IS NULL AND l.units_of = l.id AND l.second_of IS NULL AND w.student_id <> me.student_id
          AND classgan.seconds_left(l.training_id, l.iteration) IS NULL
          AND l.units <= p_most AND coalesce(plan.its->>'checks', 'sampled') <> 'off'
          AND chance < 1.0 / CASE WHEN least(theirs.valid_streak, mine.valid_streak) < 10 THEN 1 ELSE least(theirs.valid_streak, mine.valid_streak) END
          AND l.units = (SELECT count(*) FROM units AS u WHERE u.lease_id = l.id AND u.state = 'leased' AND u.reach <= p_images)
          AND NOT EXISTS (SELECT FROM leases AS other WHERE other.training_id = l.training_id AND other.iteration = l.iteration AND other.second_of = l.id)
        ORDER BY theirs.valid_streak, l.claimed_at DESC LIMIT 1 FOR UPDATE OF l SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        SELECT array_agg(u.ordinal ORDER BY u.ordinal) INTO these FROM units AS u WHERE u.lease_id = first.id;
    END IF;
    INSERT INTO leases (training_id, iteration, worker_id, boot_id, units, images, first_ordinal, units_of, plan_version, second_of, ordinals, leased_until)
    SELECT p_training, first.iteration, p_worker, p_boot, first.units, first.images, first.first_ordinal, 0, first.plan_version, first.id, these,
        now() + make_interval(secs => (first.its->>'lease_seconds')::float)
    RETURNING id, leases.leased_until INTO lease, until;
    UPDATE leases SET units_of = lease WHERE id = lease;
    RETURN QUERY
    SELECT lease, until, p_training, first.iteration, first.plan_version, u.ordinal, u.epoch, u.indices, u.seed, NULL::float
    FROM units AS u WHERE u.training_id = p_training AND u.iteration = first.iteration AND u.ordinal = ANY (these) ORDER BY u.ordinal;
END $$;
