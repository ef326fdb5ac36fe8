-- The student who is connected and not suspended, and that this worker is theirs.
-- Called by every other function of this folder: identity is the login, never an argument.
CREATE FUNCTION student.whoami() RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
DECLARE
    me bigint;
    why text;
BEGIN
    SELECT id, suspended INTO me, why FROM students WHERE login = session_user;
    IF me IS NULL THEN
        RAISE EXCEPTION 'The login "%" is not a student of this class. Ask your instructor for an invite.', session_user
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
    PERFORM FROM workers WHERE id = p_worker AND student_id = student.whoami();
    IF NOT FOUND THEN
        RAISE EXCEPTION 'Worker % is not one of yours.', p_worker USING ERRCODE = 'insufficient_privilege';
    END IF;
END $$;
