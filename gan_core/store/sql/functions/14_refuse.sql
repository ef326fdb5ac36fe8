-- Takes an accepted contribution back because its payload proved unusable; its units go to someone else.
-- Called by the coordinator after decoding. A unit that was handed out p_tries times is given up: whoever computes it, it fails.
CREATE FUNCTION classgan.refuse(p_contribution bigint, p_reason text, p_tries integer) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
DECLARE
    bad contributions%ROWTYPE;
    given_up integer;
BEGIN
    UPDATE contributions SET verdict = 'refused', credited = false, reason = p_reason WHERE id = p_contribution RETURNING * INTO bad;
    DELETE FROM gradients WHERE contribution_id = p_contribution;
    UPDATE units SET state = CASE WHEN attempts < p_tries THEN 'open'::unit_state ELSE 'stale' END, contribution_id = NULL
    WHERE contribution_id = p_contribution;
    SELECT count(*) INTO given_up FROM units
    WHERE training_id = bad.training_id AND iteration = bad.iteration AND lease_id = bad.lease_id AND state = 'stale';
    UPDATE workers SET message = p_reason WHERE id = bad.worker_id;
    PERFORM classgan.note(bad.training_id, bad.iteration, 'refused', format(
        'A contribution of %s to iteration %s was refused: %s. %s', classgan.called(bad.worker_id), bad.iteration, p_reason,
        CASE given_up WHEN 0 THEN 'Its units go to others.' ELSE format('Tried %s times, its units are given up.', p_tries) END));
    PERFORM pg_notify('classgan_work', '');
END $$;
