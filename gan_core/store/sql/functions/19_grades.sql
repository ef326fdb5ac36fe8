-- What every student did, one row each, as a mark needs it: credited work, when, with what, and what did not count.
-- Called by the grade export. `p_period` is the unit of regularity (hour, day, week), `p_zone` the class's time zone, and what
-- was handed in after `p_due` (NULL: no such moment) is not in time. The login `cluster` of the Kubernetes pool is no student: its
-- pods change nobody's rank, usual speed or periods.
CREATE FUNCTION classgan.work_done(p_period text, p_zone text, p_due timestamptz) RETURNS TABLE (
    login text, display_name text, roster jsonb, suspended text, units bigint, images bigint, seconds float, hours float,
    answers bigint, credited bigint, in_time bigint, late bigint, rejected bigint, checked bigint, invalid bigint,
    first_at timestamptz, last_at timestamptz, active_days bigint, consistency float, devices text, rank bigint
)
LANGUAGE sql STABLE SET search_path = classgan, pg_temp AS $$
    WITH people AS (
        SELECT * FROM students WHERE login <> 'cluster'
    ), theirs AS (
        SELECT w.* FROM workers AS w JOIN people AS p ON p.id = w.student_id
    ), slots AS (  -- the contributions are read once: a row a worker and period
        SELECT c.worker_id, date_trunc(p_period, c.here) AS period, c.here::date AS day,
            count(*) AS answers, count(*) FILTER (WHERE c.credited) AS credited,
            count(*) FILTER (WHERE c.credited AND (p_due IS NULL OR c.submitted_at <= p_due)) AS in_time,
            count(*) FILTER (WHERE NOT c.credited AND c.verdict = 'late' AND c.reason NOT LIKE 'invalid:%') AS late,
            count(*) FILTER (WHERE NOT c.credited AND (c.verdict <> 'late' OR c.reason LIKE 'invalid:%')) AS rejected,
            coalesce(sum(c.units) FILTER (WHERE c.credited), 0) AS units,
            coalesce(sum(c.images) FILTER (WHERE c.credited), 0) AS images,
            coalesce(sum(c.seconds) FILTER (WHERE c.credited), 0) AS seconds,
            min(c.submitted_at) FILTER (WHERE c.credited) AS first_at, max(c.submitted_at) FILTER (WHERE c.credited) AS last_at
        FROM (SELECT *, submitted_at AT TIME ZONE p_zone AS here FROM contributions OFFSET 0) AS c  -- one conversion a row
        WHERE c.worker_id IN (SELECT id FROM theirs)
        GROUP BY 1, 2, 3
    ), kinds AS (  -- how fast a usual device of a kind is: cpu, cuda, mps
        SELECT split_part(device, ':', 1) AS kind, percentile_cont(0.5) WITHIN GROUP (ORDER BY images_per_second) AS speed
        FROM theirs WHERE images_per_second > 0 GROUP BY 1
    ), machines AS (  -- whoever names a slower kind than theirs is measured by their own speed, whoever dawdles by their kind's
        SELECT w.id, w.student_id, split_part(w.device, ':', 1) AS kind, greatest(k.speed, w.images_per_second) AS speed
        FROM theirs AS w LEFT JOIN kinds AS k ON k.kind = split_part(w.device, ':', 1)
    ), sums AS (
        SELECT m.student_id, sum(s.answers) AS answers, sum(s.credited) AS credited, sum(s.in_time) AS in_time, sum(s.late) AS late,
            sum(s.rejected) AS rejected, sum(s.units) AS units, sum(s.images) AS images, sum(s.seconds) AS seconds,
            sum(CASE WHEN m.speed > 0 THEN s.images / m.speed ELSE s.seconds END) / 3600 AS hours,
            min(s.first_at) AS first_at, max(s.last_at) AS last_at,
            count(DISTINCT s.day) FILTER (WHERE s.credited > 0) AS active_days,
            string_agg(DISTINCT m.kind, ' ' ORDER BY m.kind) FILTER (WHERE s.credited > 0) AS devices
        FROM slots AS s JOIN machines AS m ON m.id = s.worker_id GROUP BY 1
    ), shares AS (  -- of a student's images, by period
        SELECT m.student_id, sum(s.images) / sum(sum(s.images)) OVER (PARTITION BY m.student_id) AS share
        FROM slots AS s JOIN machines AS m ON m.id = s.worker_id WHERE s.images > 0 GROUP BY m.student_id, s.period
    ), evenness AS (  -- Pielou 1966: entropy over its maximum; the periods are those in which anybody worked
        SELECT student_id, CASE WHEN p.number = 1 THEN 1 ELSE least(1, -sum(share * ln(share)) / ln(p.number)) END AS consistency
        FROM shares, (SELECT count(DISTINCT period) AS number FROM slots WHERE images > 0) AS p GROUP BY student_id, p.number
    ), verified AS (
        SELECT student_id, count(*) AS checked, count(*) FILTER (WHERE NOT valid) AS invalid
        FROM checks WHERE checked_at IS NOT NULL GROUP BY 1
    )
    SELECT s.login, s.display_name, s.roster, s.suspended, coalesce(t.units, 0)::bigint, coalesce(t.images, 0)::bigint,
        coalesce(t.seconds, 0)::float, coalesce(t.hours, 0)::float, coalesce(t.answers, 0)::bigint, coalesce(t.credited, 0)::bigint,
        coalesce(t.in_time, 0)::bigint, coalesce(t.late, 0)::bigint, coalesce(t.rejected, 0)::bigint, coalesce(v.checked, 0),
        coalesce(v.invalid, 0), t.first_at, t.last_at, coalesce(t.active_days, 0), coalesce(e.consistency, 0)::float,
        coalesce(t.devices, ''), rank() OVER (ORDER BY coalesce(t.images, 0) DESC)
    FROM people AS s LEFT JOIN sums AS t ON t.student_id = s.id
    LEFT JOIN evenness AS e ON e.student_id = s.id LEFT JOIN verified AS v ON v.student_id = s.id
    ORDER BY coalesce(t.images, 0) DESC, s.login
$$;
