-- What a worker must know of a training before it computes: plan and data.
-- Called by a worker at its first unit of a training, and after each change of the plan.
CREATE FUNCTION student.read_training(p_training bigint)
RETURNS TABLE (name text, plan jsonb, plan_version integer, data_fingerprint text, data_images bigint, data_source text, data_shards jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
BEGIN
    PERFORM student.whoami();
    RETURN QUERY SELECT t.name, t.plan, t.plan_version, t.data_fingerprint, t.data_images, t.data_source, t.data_shards FROM trainings AS t WHERE t.id = p_training;
END $$;

-- The trainings that want workers now.
-- Called by a student who asks whether this machine has what it takes, and by a shift that looks for data to fetch.
CREATE FUNCTION student.trainings() RETURNS TABLE (id bigint, name text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
BEGIN
    PERFORM student.whoami();
    RETURN QUERY SELECT t.id, t.name FROM trainings AS t WHERE t.state IN ('queued', 'launching', 'running') ORDER BY t.id;
END $$;
