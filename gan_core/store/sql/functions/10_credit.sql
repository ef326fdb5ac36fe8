-- What every student earned: derived from credited contributions, which are the accepted ones and, by plan, blameless late ones.
-- Called by a student who looks at the board, and by the grade export.
CREATE VIEW classgan.ledger AS
SELECT s.id AS student_id, s.login, s.display_name,
    coalesce(sum(c.units) FILTER (WHERE c.credited), 0)::bigint AS units,
    coalesce(sum(c.images) FILTER (WHERE c.credited), 0)::bigint AS images,
    coalesce(sum(c.seconds) FILTER (WHERE c.credited), 0)::float AS seconds,
    count(c.id) FILTER (WHERE c.verdict = 'late') AS late,
    count(c.id) FILTER (WHERE c.verdict = 'refused') AS refused,
    min(c.submitted_at) FILTER (WHERE c.credited) AS first_at,
    max(c.submitted_at) FILTER (WHERE c.credited) AS last_at
FROM classgan.students AS s
LEFT JOIN classgan.workers AS w ON w.student_id = s.id
LEFT JOIN classgan.contributions AS c ON c.worker_id = w.id
GROUP BY s.id;

CREATE FUNCTION student.my_credit() RETURNS TABLE (units bigint, images bigint, seconds float)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
    SELECT units, images, seconds FROM ledger WHERE student_id = student.whoami()
$$;

-- A student's own choice, and nobody else's: to be named among the contributors of a model that is shown to the world.
CREATE FUNCTION student.be_named(p_named boolean) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
    UPDATE students SET named = p_named WHERE id = student.whoami() RETURNING named
$$;
