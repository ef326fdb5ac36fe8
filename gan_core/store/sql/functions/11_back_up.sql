-- Leases units that somebody else holds a second time, if this machine would be done before; no rows when there are none.
-- Called by a claim that found nothing open: the worker is idle anyway. The first accepted answer wins.
CREATE FUNCTION classgan.back_up(p_worker bigint, p_boot uuid, p_training bigint, p_images bigint)
RETURNS TABLE (
    lease_id bigint, leased_until timestamptz, training_id bigint, iteration integer, plan_version integer,
    ordinal integer, epoch integer, indices integer[], seed bigint, seconds_left float
)
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
#variable_conflict use_column
DECLARE
    overdue record;
    lease bigint;
    until timestamptz;
BEGIN
    SELECT l.*, t.plan, time.* INTO overdue
    FROM leases AS l
    JOIN trainings AS t ON t.id = l.training_id AND t.iteration = l.iteration AND t.state = 'running'
    JOIN workers AS w ON w.id = l.worker_id
    JOIN workers AS me ON me.id = p_worker
    CROSS JOIN LATERAL (SELECT classgan.planned_seconds(t.id, t.iteration) AS seconds) AS planned
    CROSS JOIN LATERAL (SELECT extract(epoch FROM now() - l.claimed_at)::float AS elapsed,
        coalesce(l.images / w.images_per_second, planned.seconds) AS usual, coalesce(l.images / me.images_per_second, planned.seconds) AS mine) AS time
    WHERE l.ended_at IS NULL AND l.units_of = l.id AND l.worker_id <> p_worker AND classgan.seconds_left(l.training_id, l.iteration) IS NULL AND (t.plan->>'backup_leases')::boolean
      AND t.step_mb <= coalesce(classgan.room_mb(me.device, me.hardware), t.step_mb)
      AND coalesce((SELECT p.training_id = t.id FROM placements AS p WHERE p.worker_id = p_worker AND p.ended_at IS NULL), classgan.takes_anybody(t))
      -- It will take longer than planned, and this machine will be done a second before, even if it takes half as long again as usual.
      -- Whoever fits into the planned time is not raced, however slow: unfinished work earns nothing.
      AND ((time.usual > planned.seconds AND me.images_per_second > 0 AND time.elapsed + 1 + 1.5 * time.mine < time.usual)
      -- Or it has taken one and a half times its usual time and a second, and this machine would have done it twice meanwhile.
        OR (time.elapsed > 1 + 1.5 * time.usual AND time.elapsed > 2 * time.mine))
      AND EXISTS (SELECT FROM units AS u WHERE u.lease_id = l.id AND u.state = 'leased')
      AND NOT EXISTS (SELECT FROM units AS u WHERE u.lease_id = l.id AND u.reach > CASE WHEN t.id = p_training THEN p_images ELSE 0 END)
      -- Unless somebody does it already; a student's own second machine keeps nobody else from it.
      AND NOT EXISTS (SELECT FROM leases AS other JOIN workers AS theirs ON theirs.id = other.worker_id
        WHERE other.units_of = l.id AND other.id <> l.id AND other.ended_at IS NULL AND (theirs.student_id <> w.student_id OR me.student_id = w.student_id))
    ORDER BY l.claimed_at LIMIT 1 FOR UPDATE OF l SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO leases (training_id, iteration, worker_id, boot_id, units, images, first_ordinal, units_of, plan_version, leased_until)
    VALUES (overdue.training_id, overdue.iteration, p_worker, p_boot, overdue.units, overdue.images, overdue.first_ordinal, overdue.id,
        overdue.plan_version, now() + make_interval(secs => (overdue.plan->>'lease_seconds')::float))
    RETURNING id, leases.leased_until INTO lease, until;
    PERFORM classgan.note(overdue.training_id, overdue.iteration, 'backup', format(
        '%s computes %s of iteration %s too (backup lease): %s has had it for %s s and usually needs %s s.', classgan.called(p_worker),
        CASE overdue.units WHEN 1 THEN 'unit ' || overdue.first_ordinal ELSE overdue.units || ' units' END, overdue.iteration,
        classgan.called(overdue.worker_id), round(overdue.elapsed::numeric), round(overdue.usual::numeric, 1)));
    RETURN QUERY
    WITH again AS (
        UPDATE units AS u SET attempts = u.attempts + 1 WHERE u.lease_id = overdue.id
        RETURNING u.ordinal, u.epoch, u.indices, u.seed
    )
    SELECT lease, until, overdue.training_id, overdue.iteration, overdue.plan_version, a.ordinal, a.epoch, a.indices, a.seed, NULL::float
    FROM again AS a ORDER BY a.ordinal;
END $$;
