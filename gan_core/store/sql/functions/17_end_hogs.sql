-- Ends students' sessions that keep the server busy: a statement or an open transaction that lasts longer than p_seconds.
-- Called by the coordinator now and then. A time-out on the role alone doesn't hold: whoever is connected can lift it.
CREATE FUNCTION classgan.end_hogs(p_seconds float) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity AS a JOIN students AS s ON s.login = a.usename
    WHERE a.datname = current_database() AND coalesce(a.xact_start, a.query_start) < now() - make_interval(secs => p_seconds)
      AND a.state IN ('active', 'idle in transaction', 'idle in transaction (aborted)', 'fastpath function call')
$$;
