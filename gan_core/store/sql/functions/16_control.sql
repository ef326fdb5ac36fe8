-- Moves a training to another state on a person's word; returns the state it was in. Nothing happens when that is not possible.
-- Called by `classgan pause`, `cancel`, `resume` and the flow `control`.
CREATE FUNCTION classgan.control(p_training bigint, p_to classgan.training_state, p_author text, p_message text) RETURNS classgan.training_state
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
DECLARE
    was trainings%ROWTYPE;
BEGIN
    SELECT * INTO was FROM trainings WHERE id = p_training FOR UPDATE;
    IF (p_to = 'paused' AND was.state IN ('queued', 'launching', 'running'))
        OR (p_to = 'queued' AND was.state IN ('paused', 'failed', 'succeeded'))
        OR (p_to = 'cancelled' AND was.state IN ('queued', 'launching', 'running', 'paused', 'failed')) THEN
        UPDATE trainings SET state = p_to, message = p_message, updated_at = now() WHERE id = p_training;
        PERFORM classgan.note(p_training, was.iteration, p_to::text, format('%s by %s: it was %s.',
            CASE p_to WHEN 'queued' THEN 'Resumed' ELSE initcap(p_to::text) END, p_author, was.state));
        IF p_to = 'cancelled' THEN
            DELETE FROM checks WHERE training_id = p_training AND checked_at IS NULL;
        END IF;
        PERFORM pg_notify('classgan_submitted', p_training::text);  -- wakes its coordinator
    END IF;
    RETURN was.state;
END $$;

-- Notes the plan that shall hold from the next iteration on.
-- Called after validation, for a training in any state that can go on.
CREATE FUNCTION classgan.want_plan(p_training bigint, p_plan jsonb, p_author text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    UPDATE trainings SET wanted = p_plan, wanted_by = left(p_author, 200), updated_at = now() WHERE id = p_training;
$$;

-- Makes the wanted plan the plan, if it is still the one that was asked for; writes who changed what into the history.
-- Called by the coordinator between two iterations, after a checkpoint: so no repetition ever crosses a change.
CREATE FUNCTION classgan.change_plan(p_training bigint, p_wanted jsonb, p_changes text) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
DECLARE
    changed trainings%ROWTYPE;
BEGIN
    UPDATE trainings SET plan = p_wanted, plan_version = plan_version + 1, wanted = CASE WHEN wanted = p_wanted THEN NULL ELSE wanted END
    WHERE id = p_training AND plan <> p_wanted RETURNING * INTO changed;
    IF FOUND THEN
        PERFORM classgan.note(p_training, changed.iteration, 'plan', format('From iteration %s on, by %s: %s.', changed.iteration, changed.wanted_by, p_changes));
    ELSE                   -- it went through before, and the connection broke before the answer came; or nothing differs
        UPDATE trainings SET wanted = NULL WHERE id = p_training AND wanted = p_wanted;
    END IF;
    RETURN (SELECT plan_version FROM trainings WHERE id = p_training);
END $$;
