-- What a worker must know of a training before it computes: plan and data.
-- Called by a worker at its first unit of a training, and after each change of the plan.
CREATE FUNCTION student.read_training(p_training bigint)
RETURNS TABLE (name text, plan jsonb, plan_version integer, data_fingerprint text, data_images bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
BEGIN
    PERFORM student.whoami();
    RETURN QUERY SELECT t.name, t.plan, t.plan_version, t.data_fingerprint, t.data_images FROM trainings AS t WHERE t.id = p_training;
END $$;
