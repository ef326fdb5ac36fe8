-- Gives a lease back unfinished; its units are open at once.
-- Called by a shift that ends early or can't compute, with the reason in words.
CREATE FUNCTION student.release(p_lease bigint, p_boot uuid, p_reason text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
DECLARE
    owner bigint;
BEGIN
    UPDATE leases SET ended_at = now(), outcome = 'given back'
    FROM workers AS w
    WHERE leases.id = p_lease AND leases.boot_id = p_boot AND leases.ended_at IS NULL
      AND w.id = leases.worker_id AND w.student_id = student.whoami()
    RETURNING w.id INTO owner;
    IF owner IS NULL THEN
        RETURN;
    END IF;
    UPDATE workers SET message = left(p_reason, 500) WHERE id = owner;
    UPDATE units SET state = 'open' WHERE lease_id = p_lease AND state = 'leased';
    PERFORM pg_notify('classgan_work', '');
END $$;
