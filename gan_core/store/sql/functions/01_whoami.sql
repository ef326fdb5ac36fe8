-- Whose request this is: the session's own login. The class server asks for many students with one login, which has the rights
-- of whoever owns our tables and could do anything anyway; that one says whom it has let in. What a student's session says is not looked at.
CREATE FUNCTION classgan.caller() RETURNS text
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT CASE WHEN pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'classgan.students'::regclass), 'MEMBER')
        THEN coalesce(nullif(current_setting('classgan.student', true), ''), session_user) ELSE session_user END
$$;

-- The student who asks and is not suspended, and that this worker is theirs.
-- Called by every other function of this folder: identity is the login, never an argument.
CREATE FUNCTION student.whoami() RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
DECLARE
    me bigint;
    why text;
BEGIN
    SELECT id, suspended INTO me, why FROM students WHERE login = classgan.caller();
    IF me IS NULL THEN
        RAISE EXCEPTION 'The login "%" is not a student of this class. Ask your instructor for an invite.', classgan.caller()
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF why <> '' THEN
        RAISE EXCEPTION 'Your login is suspended: %. What you earned stays; talk to your instructor.', rtrim(why, '.')
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN me;
END $$;

CREATE FUNCTION student.require_worker(p_worker bigint) RETURNS void
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
BEGIN
    PERFORM classgan.require_format(w.format) FROM workers AS w WHERE id = p_worker AND student_id = student.whoami();
    IF NOT FOUND THEN
        RAISE EXCEPTION 'Worker % is not one of yours.', p_worker USING ERRCODE = 'insufficient_privilege';
    END IF;
END $$;

-- Nothing, or an error where a machine's payloads are of another form than this version's: it has another version of classgan.
CREATE FUNCTION classgan.require_format(p_format integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = classgan, pg_temp AS $$
BEGIN
    IF p_format <> 2 THEN  -- units.PAYLOAD_FORMAT
        RAISE EXCEPTION 'this machine has another version of classgan than the class: its payloads have form %, the class''s have form 2. Install the class''s version on it and start its worker again.', p_format
            USING ERRCODE = 'feature_not_supported';
    END IF;
END $$;
