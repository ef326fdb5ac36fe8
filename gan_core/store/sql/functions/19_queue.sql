-- Takes a training into the queue; the same key of the same owner again is the same training.
-- Called by `classgan submit`, by `train` when it has to wait, and by whatever else submits. is_new says whether it was made now.
CREATE FUNCTION classgan.submit(
    p_name text, p_plan jsonb, p_owner text, p_priority integer, p_gpus integer, p_memory_mb integer,
    p_min_workers integer, p_max_workers integer, p_key text
) RETURNS TABLE (name text, is_new boolean)
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
#variable_conflict use_column
DECLARE
    mine trainings%ROWTYPE;
BEGIN
    INSERT INTO trainings (name, plan, owner, priority, gpus, memory_mb, min_workers, max_workers, idempotency_key)
    VALUES (p_name, p_plan, p_owner, p_priority, p_gpus, p_memory_mb, p_min_workers, p_max_workers, p_key)
    ON CONFLICT DO NOTHING RETURNING * INTO mine;
    IF FOUND THEN
        PERFORM classgan.note(mine.id, 0, 'queued', format('Submitted by %s.',
            coalesce((SELECT display_name FROM students WHERE login = p_owner), nullif(p_owner, ''), 'a person')));  -- others read it
        RETURN QUERY SELECT mine.name, true;
    ELSE
        RETURN QUERY SELECT t.name, false FROM trainings AS t
        WHERE (t.owner = p_owner AND t.idempotency_key = p_key) OR t.name = p_name
        ORDER BY (t.owner = p_owner AND t.idempotency_key = p_key) DESC NULLS LAST LIMIT 1;
    END IF;
END $$;

-- Whether a training takes any worker, also one that the queue hasn't placed yet.
-- Called by a claim. One that needs a GPU, or several workers at once, gets only those that are placed on it.
CREATE FUNCTION classgan.takes_anybody(p_training classgan.trainings) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT p_training.gpus = 0 AND p_training.memory_mb = 0 AND p_training.min_workers = 1 AND p_training.max_workers IS NULL
$$;

-- Memory that a training may take on a machine, in MB: on its device what it says of that, on its CPU half of its own memory, since
-- the system, a browser and PyTorch want theirs; the larger of both. NULL if the machine hasn't said it.
-- Called by a claim and by the queue.
CREATE FUNCTION classgan.room_mb(p_device text, p_hardware jsonb) RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path = classgan, pg_temp AS $$
    SELECT nullif(floor(CASE WHEN p_device = 'cpu' THEN cpu WHEN gpu IS NOT NULL THEN greatest(cpu, gpu) END), 0)::integer
    FROM (SELECT classgan.amount(p_hardware->'memory_mb', 1e8) / 2 AS cpu, classgan.amount(p_hardware->'room_mb', 1e8) AS gpu) AS said
$$;

-- Writes down which training each of these workers works for from now on, and why; all others work for none in particular.
-- Called by the queue at each look. What stays as it is keeps its row; a worker changes over at the end of its unit.
CREATE FUNCTION classgan.record_placements(p_workers bigint[], p_trainings bigint[], p_reasons text[]) RETURNS void
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    UPDATE placements SET ended_at = now() WHERE ended_at IS NULL
    AND NOT EXISTS (SELECT FROM unnest(p_workers, p_trainings) AS d (worker, training) WHERE worker = worker_id AND training = training_id);

    INSERT INTO placements (worker_id, training_id, reason)
    SELECT worker, training, reason FROM unnest(p_workers, p_trainings, p_reasons) AS d (worker, training, reason)
    WHERE NOT EXISTS (SELECT FROM placements WHERE worker_id = worker AND ended_at IS NULL);

    DELETE FROM placements WHERE ended_at < now() - interval '7 days';
$$;

-- Writes down which trainings have their workers, which of them in their turn, and since when the others wait.
-- Called by the queue at each look.
CREATE FUNCTION classgan.record_turns(p_served bigint[], p_in_turn bigint[]) RETURNS void
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    UPDATE trainings SET in_turn = id = ANY (p_in_turn) AND state IN ('launching', 'running'),
        waited_seconds = waited_seconds + CASE WHEN id = ANY (p_served) THEN coalesce(extract(epoch FROM now() - waiting_since), 0) ELSE 0 END,
        waiting_since = CASE WHEN id = ANY (p_served) THEN NULL ELSE coalesce(waiting_since, now()) END
    WHERE state IN ('queued', 'launching', 'running')
      AND (in_turn <> (id = ANY (p_in_turn) AND state IN ('launching', 'running')) OR (waiting_since IS NULL) <> (id = ANY (p_served)));
$$;

-- Puts a running training back into the queue, for another one that comes first; units that are out are still accepted.
-- Called by the queue. Its coordinator ends at its next look, and the training goes on later where it stood.
CREATE FUNCTION classgan.put_back(p_training bigint, p_message text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    UPDATE trainings SET state = 'queued', message = p_message, updated_at = now() WHERE id = p_training AND state IN ('launching', 'running');
    SELECT classgan.note(id, iteration, 'queued', format('Back in the queue: %s.', p_message)) FROM trainings WHERE id = p_training;
    SELECT pg_notify('classgan_submitted', p_training::text);
$$;

-- Lets a worker have no new units, or have them again; what it computes now is still accepted.
-- Called by `classgan workers --drain` and `--undrain`. p_by is "" to end it; returns how many workers were meant.
CREATE FUNCTION classgan.drain(p_worker text, p_by text) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    WITH meant AS (UPDATE workers SET drained = left(p_by, 200) WHERE name = p_worker RETURNING id)
    SELECT count(*) FROM meant
$$;

-- Machines whose worker is there although no shift of theirs is: they are given one as soon as something waits for them.
-- Read by whoever shows machines or explains a wait. A worker with several devices has a shift on each, called NAME DEVICE.
CREATE VIEW classgan.waiting AS
SELECT j.name, coalesce(s.display_name, '') AS student, extract(epoch FROM now() - j.last_seen)::float AS seconds_silent
FROM classgan.joined AS j
LEFT JOIN LATERAL (
    SELECT display_name FROM classgan.students WHERE login = j.name OR starts_with(j.name, login || '-') ORDER BY length(login) DESC LIMIT 1
) AS s ON true
WHERE j.last_seen > now() - interval '30 seconds' AND NOT EXISTS (
    SELECT FROM classgan.workers AS w
    WHERE (w.name = j.name OR starts_with(w.name, j.name || ' ')) AND w.last_seen > now() - interval '20 seconds'
);
