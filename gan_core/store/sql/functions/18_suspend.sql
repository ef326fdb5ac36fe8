-- Shuts a student out: no new call is answered, open leases go to others at once, sessions end. What was earned stays.
-- Called by `classgan students suspend`, and by classgan.refuse. Without a reason it lets the student in again.
CREATE FUNCTION classgan.suspend(p_student bigint, p_reason text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
BEGIN
    UPDATE students SET suspended = left(p_reason, 500) WHERE id = p_student;
    IF p_reason = '' THEN
        RETURN;
    END IF;
    -- First their sessions: one with an open transaction would keep the rows that are to be changed.
    PERFORM pg_terminate_backend(a.pid, 5000) FROM pg_stat_activity AS a JOIN students AS s ON s.login = a.usename AND a.usename <> session_user
    WHERE s.id = p_student AND a.datname = current_database();
    UPDATE leases SET ended_at = now(), outcome = 'given back'
    FROM workers AS w WHERE w.id = leases.worker_id AND w.student_id = p_student AND leases.ended_at IS NULL;
    UPDATE units SET state = 'open' FROM leases AS l JOIN workers AS w ON w.id = l.worker_id
    WHERE units.lease_id = l.units_of AND units.state = 'leased' AND w.student_id = p_student
      AND NOT EXISTS (SELECT FROM leases AS other WHERE other.units_of = l.units_of AND other.ended_at IS NULL);
    UPDATE workers SET message = format('suspended: %s', left(p_reason, 400)),
        last_seen = least(last_seen, now() - interval '5 minutes')  -- their sessions are over: offline at once, for everybody who counts
    WHERE student_id = p_student;
    INSERT INTO events (training_id, iteration, kind, text)
    SELECT t.id, t.iteration, 'suspended', format('%s was suspended: %s.', s.display_name, rtrim(p_reason, '.'))
    FROM trainings AS t, students AS s WHERE s.id = p_student AND t.state = 'running';
    PERFORM pg_terminate_backend(a.pid) FROM pg_stat_activity AS a JOIN students AS s ON s.login = a.usename AND a.usename <> session_user
    WHERE s.id = p_student AND a.datname = current_database();
    PERFORM pg_notify('classgan_work', '');
END $$;
