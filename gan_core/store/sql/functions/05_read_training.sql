-- What a worker must know of a training before it computes: the plan in this version (else the present one), and the data.
-- Called by a worker at its first unit of a training, and whenever a lease is of another version than the one before.
CREATE FUNCTION student.read_training(p_training bigint, p_version integer DEFAULT NULL)
RETURNS TABLE (name text, plan jsonb, plan_version integer, data_fingerprint text, data_images bigint, data_source text, data_shards jsonb, step_mb integer)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
BEGIN
    PERFORM student.whoami();
    RETURN QUERY SELECT t.name, classgan.plan_of(t.id, coalesce(p_version, t.plan_version)), coalesce(p_version, t.plan_version), t.data_fingerprint, t.data_images, t.data_source, t.data_shards, t.step_mb FROM trainings AS t WHERE t.id = p_training;
END $$;

-- A training's plan in one of its versions.
-- Called for whatever is computed, judged or credited later than it was handed out. Each version is kept when an iteration opens with it.
CREATE FUNCTION classgan.plan_of(p_training bigint, p_version integer) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT coalesce((SELECT plan FROM plans WHERE training_id = p_training AND version = p_version),
                    (SELECT plan FROM trainings WHERE id = p_training))
$$;

-- The trainings that want workers now.
-- Called by a student who asks whether this machine has what it takes, and by a shift that looks for data to fetch.
CREATE FUNCTION student.trainings() RETURNS TABLE (id bigint, name text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
BEGIN
    PERFORM student.whoami();
    RETURN QUERY SELECT t.id, t.name FROM trainings AS t WHERE t.state IN ('queued', 'launching', 'running') ORDER BY t.id;
END $$;
