-- Takes an accepted contribution back because its payload proved unusable; its units go to someone else.
-- Called by the coordinator after decoding. Units that fail whoever computes them are given up.
CREATE FUNCTION classgan.refuse(p_contribution bigint, p_reason text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
DECLARE
    bad contributions%ROWTYPE;
    gives_up boolean;
BEGIN
    UPDATE contributions SET verdict = 'refused', credited = false, reason = p_reason WHERE id = p_contribution RETURNING * INTO bad;
    DELETE FROM gradients WHERE contribution_id = p_contribution;
    gives_up := classgan.is_hopeless(bad.training_id, bad.iteration, bad.first_ordinal);
    UPDATE units SET state = CASE WHEN gives_up THEN 'stale'::unit_state ELSE 'open' END, contribution_id = NULL
    WHERE contribution_id = p_contribution;
    UPDATE workers SET message = p_reason WHERE id = bad.worker_id;
    PERFORM classgan.note(bad.training_id, bad.iteration, 'refused', format(
        'A contribution of %s to iteration %s was refused: %s. %s', classgan.called(bad.worker_id), bad.iteration, p_reason,
        CASE WHEN gives_up THEN 'So were others for its units: they are given up.' ELSE 'Its units go to others.' END));
    PERFORM pg_notify('classgan_work', '');
END $$;
