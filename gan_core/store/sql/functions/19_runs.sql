-- Notes how a training's open run ended, if it has one.
-- Called by the trigger below, and by a coordinator for the one before it that never said goodbye.
CREATE FUNCTION classgan.end_run(p_training bigint, p_outcome text, p_reason text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    UPDATE runs SET ended_at = now(), outcome = p_outcome, reason = p_reason,
        last_iteration = (SELECT iteration FROM trainings WHERE id = p_training)
    WHERE training_id = p_training AND ended_at IS NULL
$$;

-- Called by a trigger when a training neither is launched nor runs any more.
CREATE FUNCTION classgan.note_end() RETURNS trigger
LANGUAGE plpgsql SET search_path = classgan, pg_temp AS $$
BEGIN
    PERFORM classgan.end_run(NEW.id, NEW.state::text, NEW.message);
    RETURN NULL;
END $$;

CREATE TRIGGER note_end AFTER UPDATE OF state ON classgan.trainings
FOR EACH ROW WHEN (NEW.state NOT IN ('launching', 'running') AND OLD.state IN ('launching', 'running'))
EXECUTE FUNCTION classgan.note_end();

-- What has a version stays as it is.
CREATE FUNCTION classgan.refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = classgan, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'a row of % is never changed: make a new version', TG_TABLE_NAME USING ERRCODE = 'check_violation';
END $$;

CREATE TRIGGER refuse_change BEFORE UPDATE ON classgan.models
FOR EACH ROW EXECUTE FUNCTION classgan.refuse_change();
CREATE TRIGGER refuse_change BEFORE UPDATE ON classgan.artifacts
FOR EACH ROW EXECUTE FUNCTION classgan.refuse_change();
CREATE TRIGGER refuse_change BEFORE UPDATE ON classgan.data_versions
FOR EACH ROW EXECUTE FUNCTION classgan.refuse_change();
