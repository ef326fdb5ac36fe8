-- Takes an accepted contribution back because its payload proved unusable; its units go to someone else.
-- Called by the coordinator after decoding. Units that fail whoever computes them are given up.
CREATE FUNCTION classgan.refuse(p_contribution bigint, p_reason text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
DECLARE
    bad contributions%ROWTYPE;
    gives_up boolean;
    culprit bigint;
    lately bigint;
BEGIN
    DELETE FROM checks WHERE contribution_id = p_contribution AND checked_at IS NULL;  -- its credit is lost anyway
    UPDATE contributions SET verdict = 'refused', credited = false, reason = p_reason WHERE id = p_contribution RETURNING * INTO bad;
    DELETE FROM gradients WHERE contribution_id = p_contribution;
    gives_up := classgan.is_hopeless(bad.training_id, bad.iteration, bad.first_ordinal);
    UPDATE units SET state = CASE WHEN gives_up THEN 'stale'::unit_state ELSE 'open' END, given_up = gives_up, contribution_id = NULL
    WHERE contribution_id = p_contribution;
    IF FOUND AND NOT gives_up AND classgan.hands_out(bad.training_id, bad.iteration) THEN
        PERFORM pg_notify('classgan_work', '');
    END IF;
    UPDATE workers SET message = p_reason, images_per_second = NULL WHERE id = bad.worker_id;  -- nothing was computed, perhaps
    PERFORM classgan.note(bad.training_id, bad.iteration, 'refused', format(
        'A contribution of %s to iteration %s was refused: %s. %s', classgan.called(bad.worker_id), bad.iteration, p_reason,
        CASE WHEN gives_up THEN 'Others for its units were refused too, so the units are given up.' ELSE 'Its units go to others.' END));
    -- One damaged upload happens. Five refused contributions within an hour are a broken machine, or no accident.
    SELECT w.student_id INTO culprit FROM workers AS w WHERE w.id = bad.worker_id;
    SELECT count(*) INTO lately FROM contributions AS c JOIN workers AS w ON w.id = c.worker_id
    WHERE w.student_id = culprit AND c.verdict = 'refused' AND NOT c.credited AND c.submitted_at > now() - interval '1 hour';
    IF lately >= 5 THEN
        PERFORM classgan.suspend(culprit, format('%s contributions were refused within an hour, the last one because: %s', lately, p_reason));
    END IF;
END $$;
