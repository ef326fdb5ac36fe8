-- Refuses a change of a training's state that gan_core.units.TRANSITIONS doesn't have, and keeps the times that go with it.
-- Called by a trigger, so that whoever changes a state goes through here.
CREATE FUNCTION classgan.check_transition() RETURNS trigger
LANGUAGE plpgsql SET search_path = classgan, pg_temp AS $$
BEGIN
    IF NOT (CASE OLD.state
        WHEN 'queued' THEN NEW.state IN ('launching', 'running', 'paused', 'failed', 'cancelled')
        WHEN 'launching' THEN NEW.state IN ('queued', 'running', 'paused', 'failed', 'cancelled')
        WHEN 'running' THEN NEW.state IN ('queued', 'launching', 'paused', 'succeeded', 'failed', 'cancelled')
        WHEN 'paused' THEN NEW.state IN ('queued', 'launching', 'succeeded', 'failed', 'cancelled')
        WHEN 'succeeded' THEN NEW.state IN ('queued', 'launching')
        WHEN 'failed' THEN NEW.state IN ('queued', 'launching', 'cancelled')
        ELSE false END) THEN
        RAISE EXCEPTION 'training "%" is %: it can''t become %', OLD.name, OLD.state, NEW.state USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.state = 'launching' THEN
        NEW.started_at := coalesce(OLD.started_at, now());
    ELSIF NEW.state = 'queued' THEN
        NEW.waiting_since := coalesce(OLD.waiting_since, now());
    ELSIF NEW.state <> 'running' THEN
        NEW.waited_seconds := OLD.waited_seconds + coalesce(extract(epoch FROM now() - OLD.waiting_since), 0);
        NEW.waiting_since := NULL;
    END IF;
    IF NEW.state NOT IN ('launching', 'running') THEN  -- the queue has to call, and to place it, anew
        NEW.in_turn := false;
        NEW.called_at := NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER check_transition BEFORE UPDATE OF state ON classgan.trainings
FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION classgan.check_transition();
