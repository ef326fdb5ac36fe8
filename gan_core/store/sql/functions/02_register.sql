-- Makes a machine known, or known again after a restart; gives its worker id.
-- Called by a shift when it starts. Leases of an earlier start are left to run out: it may still be alive.
-- Nobody has more than 32 machines. Machines of versions that don't say their payloads' form have the first one.
CREATE FUNCTION student.register(p_name text, p_boot uuid, p_device text, p_hardware jsonb, p_run uuid, p_format integer DEFAULT 1) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
DECLARE
    me bigint := student.whoami();
    mine bigint;
BEGIN
    PERFORM classgan.require_format(p_format);
    IF coalesce(btrim(classgan.plain(p_name, 100)), '') = '' THEN
        RAISE EXCEPTION 'A machine needs a name, such as laptop.' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM FROM students WHERE id = me FOR NO KEY UPDATE;  -- one at a time: counting and adding belong together
    IF (SELECT count(*) FROM workers WHERE student_id = me AND name <> classgan.plain(p_name, 100)) >= 32 THEN
        RAISE EXCEPTION 'You have 32 machines already. Use one of their names, or ask your instructor.' USING ERRCODE = 'program_limit_exceeded';
    END IF;
    INSERT INTO workers (student_id, name, boot_id, device, hardware, run_id, format)
    VALUES (me, classgan.plain(p_name, 100), p_boot, classgan.plain(p_device, 100), CASE WHEN jsonb_typeof(p_hardware) = 'object' AND octet_length(p_hardware::text) <= 4000 THEN p_hardware ELSE '{}' END, p_run, p_format)
    ON CONFLICT (student_id, name) DO UPDATE
        SET boot_id = excluded.boot_id, device = excluded.device, hardware = excluded.hardware, run_id = excluded.run_id, format = excluded.format,
            registered_at = now(), last_seen = now(), message = ''
    RETURNING id INTO mine;
    RETURN mine;
END $$;
