-- Takes the lead of a training for the connection that asks, if nobody else has it; returns the new term, or NULL.
-- Called by a coordinator on every new connection. The lock ends with the connection; the term is what publishing checks.
-- p_term is the term that this coordinator had before its connection broke, or NULL: if it still holds, nobody led meanwhile.
CREATE FUNCTION classgan.take_lead(p_training bigint, p_lock_class integer, p_me uuid, p_place text, p_term integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
DECLARE
    now_term integer;
    other text;
BEGIN
    INSERT INTO coordinators (id, training_id, place, leads) VALUES (p_me, p_training, p_place, false)
    ON CONFLICT (id) DO UPDATE SET last_seen = now(), leads = false;
    IF NOT pg_try_advisory_lock(p_lock_class, p_training::integer) THEN
        RETURN NULL;
    END IF;
    SELECT term INTO now_term FROM trainings WHERE id = p_training FOR UPDATE;
    SELECT string_agg(place, ', ') INTO other FROM coordinators WHERE training_id = p_training AND leads AND id <> p_me;
    IF now_term IS DISTINCT FROM p_term THEN
        UPDATE trainings SET term = term + 1 WHERE id = p_training RETURNING term INTO now_term;
    END IF;
    IF other IS NOT NULL THEN
        PERFORM classgan.note(p_training, (SELECT iteration FROM trainings WHERE id = p_training), 'take-over',
            format('%s took over the lead from %s, which had ended or sent no heartbeat.', p_place, other));
    END IF;
    DELETE FROM coordinators WHERE training_id = p_training AND (leads OR last_seen < now() - interval '1 day') AND id <> p_me;
    UPDATE coordinators SET leads = true WHERE id = p_me;
    RETURN now_term;
END $$;

-- Cuts the connection of a leader that has been silent for longer than p_seconds (stopped, swapped out, behind a dead
-- network): it loses the lock and, as the term moves on, the right to publish. Returns how many were cut.
CREATE FUNCTION classgan.depose(p_training bigint, p_lock_class integer, p_seconds float) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    SELECT count(pg_terminate_backend(pid)) FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND classid = p_lock_class::oid AND objid = p_training::oid
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND NOT EXISTS (
        SELECT FROM coordinators WHERE training_id = p_training AND leads AND last_seen > now() - make_interval(secs => p_seconds))
$$;
