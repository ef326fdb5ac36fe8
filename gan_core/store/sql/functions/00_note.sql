-- Writes one sentence into a training's history, where `classgan events` and the log of `train` show it.
-- Called by the functions below and by the coordinator, for whatever is beyond the ordinary.
CREATE FUNCTION classgan.note(p_training bigint, p_iteration integer, p_kind text, p_text text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    INSERT INTO events (training_id, iteration, kind, text) VALUES (p_training, p_iteration, p_kind, left(p_text, 1000));
$$;

-- A worker as people know it.
CREATE FUNCTION classgan.called(p_worker bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT CASE WHEN s.display_name = w.name THEN w.name ELSE format('%s (%s)', s.display_name, w.name) END
    FROM workers AS w JOIN students AS s ON s.id = w.student_id WHERE w.id = p_worker
$$;
