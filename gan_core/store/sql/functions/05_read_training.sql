-- What a worker must know of a training before it computes: plan, data and payload size.
-- Called by a worker at its first unit of a training.
CREATE FUNCTION student.read_training(p_training bigint)
RETURNS TABLE (name text, plan jsonb, data_fingerprint text, data_images bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
BEGIN
    PERFORM student.whoami();
    RETURN QUERY SELECT t.name, t.plan, t.data_fingerprint, t.data_images FROM trainings AS t WHERE t.id = p_training;
END $$;
