-- Takes an accepted contribution back because its payload proved unusable; its units go to someone else.
-- Called by the coordinator after decoding.
CREATE FUNCTION classgan.refuse(p_contribution bigint, p_reason text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    UPDATE contributions SET verdict = 'refused', reason = p_reason WHERE id = p_contribution;
    DELETE FROM gradients WHERE contribution_id = p_contribution;
    UPDATE units SET state = 'open', contribution_id = NULL WHERE contribution_id = p_contribution;
    UPDATE workers SET message = p_reason FROM contributions AS c WHERE c.id = p_contribution AND workers.id = c.worker_id;
    SELECT pg_notify('classgan_work', '');
$$;
