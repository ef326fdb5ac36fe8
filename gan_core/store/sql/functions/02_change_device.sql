-- A machine goes on with another device than it said; its speed is measured anew, and people read why.
-- Called by a shift whose device doesn't work, computes wrong numbers or has too little memory, in the middle of a lease.
CREATE FUNCTION student.change_device(p_worker bigint, p_boot uuid, p_lease bigint, p_device text, p_why text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
DECLARE
    theirs leases%ROWTYPE;
    said text := format('computes on %s now. %s', classgan.plain(p_device, 100), rtrim(classgan.plain(p_why, 400), '.'));
BEGIN
    PERFORM student.require_worker(p_worker);
    SELECT * INTO theirs FROM leases WHERE id = p_lease AND worker_id = p_worker AND boot_id = p_boot AND ended_at IS NULL;
    UPDATE workers SET device = classgan.plain(p_device, 100), images_per_second = NULL, message = said, last_seen = now()
    WHERE id = p_worker AND boot_id = p_boot AND device <> classgan.plain(p_device, 100);
    -- Once an hour is enough for the history, however often a machine says so.
    IF FOUND AND theirs.id IS NOT NULL AND NOT EXISTS (
        SELECT FROM events WHERE training_id = theirs.training_id AND kind = 'device' AND at > now() - interval '1 hour'
        AND starts_with(text, classgan.called(p_worker) || ' computes on ')
    ) THEN
        PERFORM classgan.note(theirs.training_id, theirs.iteration, 'device', classgan.called(p_worker) || ' ' || said || '.');
    END IF;
END $$;
