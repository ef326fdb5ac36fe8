-- Makes a machine known, or known again after a restart; gives its worker id.
-- Called by a shift when it starts. Leases of an earlier start are left to run out: it may still be alive.
CREATE FUNCTION student.register(p_name text, p_boot uuid, p_device text, p_hardware jsonb, p_run uuid) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
    INSERT INTO workers (student_id, name, boot_id, device, hardware, run_id)
    VALUES (student.whoami(), left(p_name, 100), p_boot, left(p_device, 100), p_hardware, p_run)
    ON CONFLICT (student_id, name) DO UPDATE
        SET boot_id = excluded.boot_id, device = excluded.device, hardware = excluded.hardware, run_id = excluded.run_id,
            registered_at = now(), last_seen = now(), message = ''
    RETURNING id
$$;
