-- Writes one sentence into a training's history, where `classgan events` and the log of `train` show it.
-- Called by the functions below and by the coordinator, for whatever is beyond the ordinary.
CREATE FUNCTION classgan.note(p_training bigint, p_iteration integer, p_kind text, p_text text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    INSERT INTO events (training_id, iteration, kind, text)
    VALUES (p_training, p_iteration, p_kind, left(regexp_replace(p_text, '[[:cntrl:]]', ' ', 'g'), 1000));
$$;

-- A number that somebody else wrote, brought within limits: NaN becomes 0, so that no sum overflows or is spoiled.
CREATE FUNCTION classgan.within(p_value float, p_least float, p_most float) RETURNS float
LANGUAGE sql IMMUTABLE SET search_path = classgan, pg_temp AS $$
    SELECT CASE WHEN p_value = 'NaN' THEN greatest(0, p_least) ELSE greatest(p_least, least(p_most, coalesce(p_value, 0))) END
$$;

-- A student's text for people's eyes: one line without control characters, which a terminal might obey.
CREATE FUNCTION classgan.plain(p_text text, p_length integer) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = classgan, pg_temp AS $$
    SELECT left(regexp_replace(p_text, '[[:cntrl:]]', ' ', 'g'), p_length)
$$;

-- Whether units are to be given up: three answers proved unusable, and not all of one student's making.
CREATE FUNCTION classgan.is_hopeless(p_training bigint, p_iteration integer, p_first_ordinal integer) RETURNS boolean
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    WITH bad AS (
        SELECT worker_id FROM contributions
        WHERE training_id = p_training AND iteration = p_iteration AND first_ordinal = p_first_ordinal AND verdict = 'refused'
        UNION ALL
        SELECT worker_id FROM leases
        WHERE training_id = p_training AND iteration = p_iteration AND first_ordinal = p_first_ordinal AND outcome = 'spoiled'
    )
    SELECT count(*) >= 3 AND count(DISTINCT w.student_id) >= least(3, (
        SELECT count(DISTINCT student_id) FROM workers WHERE last_seen > now() - interval '20 seconds'))
    FROM bad JOIN workers AS w ON w.id = bad.worker_id
$$;

-- What a student calls a machine: its name without the login that the class server puts in front. "" if there is no more.
CREATE FUNCTION classgan.machine(p_login text, p_name text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = classgan, pg_temp AS $$
    SELECT CASE WHEN p_name = p_login THEN '' WHEN starts_with(p_name, p_login || '-') THEN substr(p_name, length(p_login) + 2) ELSE p_name END
$$;

-- A worker as people know it, without its login.
CREATE FUNCTION classgan.called(p_worker bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    SELECT s.display_name || coalesce(' (' || nullif(classgan.machine(s.login, w.name), '') || ')', '')
    FROM workers AS w JOIN students AS s ON s.id = w.student_id WHERE w.id = p_worker
$$;

-- A text for everybody's eyes: folders of somebody's machine, which may bear their name, are left out.
CREATE FUNCTION classgan.public(p_text text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = classgan, pg_temp AS $$
    SELECT regexp_replace(p_text, '(^|[[:space:]''"(=:])(~?/|[A-Za-z]:\\)[^[:space:]:;,''"()]+', '\1…', 'g')
$$;

-- A number in something that a student's machine says of itself, between 0 and a limit; NULL if it is no number.
CREATE FUNCTION classgan.amount(p_value jsonb, p_most numeric) RETURNS numeric
LANGUAGE sql IMMUTABLE SET search_path = classgan, pg_temp AS $$
    SELECT CASE jsonb_typeof(p_value) WHEN 'number' THEN greatest(0, least(p_most, p_value::numeric)) END
$$;

-- A number from 0 to 1 that nobody can influence or predict: the seed of random() is the session's to choose.
CREATE FUNCTION classgan.chance() RETURNS float
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    SELECT ('x' || left(gen_random_uuid()::text, 8))::bit(32)::bigint / 4294967296.0
$$;
