-- The weights of an iteration, as a payload.
-- Called by a worker at its first unit of an iteration.
CREATE FUNCTION student.weights(p_training bigint, p_iteration integer) RETURNS bytea
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
BEGIN
    PERFORM student.whoami();
    RETURN (SELECT payload FROM weights WHERE training_id = p_training AND iteration = p_iteration);
END $$;

-- What leads to them from the weights before, as a payload; null if the training announces no changes.
-- Called by the class server, for workers that have the weights before.
CREATE FUNCTION student.weights_change(p_training bigint, p_iteration integer) RETURNS bytea
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
BEGIN
    PERFORM student.whoami();
    RETURN (SELECT change FROM weights WHERE training_id = p_training AND iteration = p_iteration);
END $$;
