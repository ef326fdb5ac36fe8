-- Writes one sentence into a training's history, where `classgan events` and the log of `train` show it.
-- Called by the functions below and by the coordinator, for whatever is beyond the ordinary.
CREATE FUNCTION classgan.note(p_training bigint, p_iteration integer, p_kind text, p_text text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    INSERT INTO events (training_id, iteration, kind, text) VALUES (p_training, p_iteration, p_kind, left(p_text, 1000));
$$;

-- Whether units are to be given up: three answers proved unusable, and not all of one machine's making.
CREATE FUNCTION classgan.is_hopeless(p_training bigint, p_iteration integer, p_first_ordinal integer) RETURNS boolean
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    WITH bad AS (
        SELECT worker_id FROM contributions
        WHERE training_id = p_training AND iteration = p_iteration AND first_ordinal = p_first_ordinal AND verdict = 'refused'
        UNION ALL
        SELECT worker_id FROM leases
        WHERE training_id = p_training AND iteration = p_iteration AND first_ordinal = p_first_ordinal AND outcome = 'spoiled'
    )
    SELECT count(*) >= 3 AND count(DISTINCT worker_id) >= least(3, (
        SELECT count(*) FROM workers WHERE last_seen > now() - interval '20 seconds'))
    FROM bad
$$;

-- A worker as people know it.
CREATE FUNCTION classgan.called(p_worker bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT CASE WHEN s.display_name = w.name THEN w.name ELSE format('%s (%s)', s.display_name, w.name) END
    FROM workers AS w JOIN students AS s ON s.id = w.student_id WHERE w.id = p_worker
$$;
