-- Gives the units of run-out leases to whoever asks next; returns how many leases ran out.
-- Called by every claim, and by the coordinator while it waits. The database's clock alone decides.
CREATE FUNCTION classgan.expire_leases() RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    WITH run_out AS (      -- a lease that is being submitted right now is locked: leave it alone
        SELECT id FROM leases WHERE ended_at IS NULL AND leased_until < now() FOR UPDATE SKIP LOCKED
    ), ended AS (
        UPDATE leases SET ended_at = now(), outcome = 'ran out: no heartbeat of the worker in time'
        FROM run_out WHERE leases.id = run_out.id
        RETURNING leases.*
    ), reopened AS (       -- lease_id stays: an answer that comes before anybody else took the unit is still welcome
        UPDATE units SET state = 'open' FROM ended
        WHERE units.lease_id = ended.units_of AND units.state = 'leased'
          AND NOT EXISTS (  -- unless somebody else still computes them: the backup, or whom it backs up
            SELECT FROM leases AS other WHERE other.units_of = ended.units_of AND other.ended_at IS NULL
            AND other.id NOT IN (SELECT id FROM run_out))
        RETURNING units.id
    ), noted AS (
        INSERT INTO events (training_id, iteration, kind, text)
        SELECT e.training_id, e.iteration, 'silent', format(
            '%s lost %s of iteration %s: no heartbeat since %s.', classgan.called(e.worker_id),
            CASE e.units WHEN 1 THEN 'unit ' || e.first_ordinal ELSE e.units || ' units' END, e.iteration, to_char(w.last_seen, 'HH24:MI:SS'))
        FROM ended AS e JOIN workers AS w ON w.id = e.worker_id
    ), told AS (
        SELECT pg_notify('classgan_work', '') FROM reopened LIMIT 1
    )
    SELECT count(*) FROM ended, (SELECT count(*) FROM told) AS t
$$;

-- Opens units that are marked as leased although nobody holds them; returns how many.
-- A net: two leases of the same units that end in the same moment may each leave them to the other.
CREATE FUNCTION classgan.reopen_orphans() RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    WITH reopened AS (
        UPDATE units SET state = 'open' WHERE state = 'leased'
        AND NOT EXISTS (SELECT FROM leases WHERE units_of = units.lease_id AND ended_at IS NULL)
        RETURNING units.id
    ), told AS (
        SELECT pg_notify('classgan_work', '') FROM reopened LIMIT 1
    )
    SELECT count(*) FROM reopened, (SELECT count(*) FROM told) AS t
$$;
