-- Gives the units of run-out leases to whoever asks next; returns how many leases ran out.
-- Called by every claim, and by the coordinator while it waits. The database's clock alone decides.
CREATE FUNCTION classgan.expire_leases() RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = classgan, pg_temp AS $$
    WITH run_out AS (      -- a lease that is being submitted right now is locked: leave it alone
        SELECT id FROM leases WHERE ended_at IS NULL AND leased_until < now() FOR UPDATE SKIP LOCKED
    ), ended AS (
        UPDATE leases SET ended_at = now(), outcome = 'ran out: nothing was heard of the worker in time'
        FROM run_out WHERE leases.id = run_out.id
        RETURNING leases.id
    ), reopened AS (       -- lease_id stays: an answer that comes before anybody else took the unit is still welcome
        UPDATE units SET state = 'open' FROM ended WHERE units.lease_id = ended.id AND units.state = 'leased'
        RETURNING units.id
    ), told AS (
        SELECT pg_notify('classgan_work', '') FROM reopened LIMIT 1
    )
    SELECT count(*) FROM ended, (SELECT count(*) FROM told) AS t
$$;
