-- Ends students' sessions that keep the server busy, or rows locked: a statement that lasts longer than p_seconds, or an
-- open transaction of 10 s that does nothing; our own programs leave none open between two statements.
-- Called by the coordinator every few seconds. A time-out on the role alone doesn't hold: whoever is connected can lift it.
CREATE FUNCTION classgan.end_runaway_sessions(p_seconds float) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity AS a JOIN students AS s ON s.login = a.usename AND a.usename <> session_user
    WHERE a.datname = current_database() AND coalesce(a.xact_start, a.query_start) < now() - make_interval(secs =>
        CASE WHEN a.state IN ('active', 'fastpath function call') THEN p_seconds
             WHEN a.state LIKE 'idle in transaction%' THEN least(p_seconds, 10) END)
$$;
