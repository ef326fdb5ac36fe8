-- Gives a lease back unfinished; its units are open at once.
-- Called by a shift that ends early or can't compute, with the reason in words. Spoiled means: it computed, and the numbers
-- were not finite. Units that spoil whoever computes them are given up.
CREATE FUNCTION student.release(p_lease bigint, p_boot uuid, p_reason text, p_spoiled boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
DECLARE
    given leases%ROWTYPE;
    gives_up boolean;
BEGIN
    UPDATE leases SET ended_at = now(), outcome = CASE WHEN p_spoiled THEN 'spoiled' ELSE 'given back' END
    FROM workers AS w
    WHERE leases.id = p_lease AND leases.boot_id = p_boot AND leases.ended_at IS NULL
      AND w.id = leases.worker_id AND w.student_id = student.whoami()
    RETURNING leases.* INTO given;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    gives_up := p_spoiled AND classgan.is_hopeless(given.training_id, given.iteration, given.first_ordinal);
    UPDATE units SET state = CASE WHEN gives_up THEN 'stale'::unit_state ELSE 'open' END, given_up = gives_up
    WHERE lease_id = given.units_of AND state = 'leased'
    AND NOT EXISTS (SELECT FROM leases WHERE units_of = given.units_of AND ended_at IS NULL);
    IF FOUND AND NOT gives_up AND classgan.hands_out(given.training_id, given.iteration) THEN
        PERFORM pg_notify('classgan_work', '');
    END IF;
    UPDATE workers SET message = classgan.plain(p_reason, 500) WHERE id = given.worker_id;
    PERFORM classgan.note(given.training_id, given.iteration, 'given back', format(
        '%s gave %s of iteration %s back: %s.%s', classgan.called(given.worker_id),
        CASE given.units WHEN 1 THEN 'unit ' || given.first_ordinal ELSE given.units || ' units' END, given.iteration, rtrim(p_reason, '.'),
        CASE WHEN gives_up THEN ' Others gave it back too, so it is given up.' ELSE '' END));
    PERFORM pg_notify('classgan_submitted', given.training_id::text);  -- perhaps nothing more can come
END $$;
