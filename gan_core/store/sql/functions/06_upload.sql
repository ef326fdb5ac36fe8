-- How many bytes the payload of this lease must have: NULL if the lease isn't the caller's, 0 if it was answered already.
-- Called by the class server before it takes the bytes.
CREATE FUNCTION student.upload_bytes(p_lease bigint, p_boot uuid) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
BEGIN
    RETURN (
        SELECT CASE WHEN EXISTS (SELECT FROM contributions AS c WHERE c.lease_id = l.id) THEN 0 ELSE t.payload_bytes END
        FROM leases AS l JOIN workers AS w ON w.id = l.worker_id JOIN trainings AS t ON t.id = l.training_id
        WHERE l.id = p_lease AND l.boot_id = p_boot AND w.student_id = student.whoami());
END $$;
