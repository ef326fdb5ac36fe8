-- What anybody may see who looks on: views with display names, without logins, roster, secrets, payloads or paths.
-- Read by the class page and by whoever logs in as classgan_viewer, the role that may read these and nothing else.
CREATE VIEW watch.trainings AS
SELECT id, name, state, classgan.public(message) AS message, iteration, images, position, data_images, plan - 'data' AS plan, created_at, updated_at,
    memory_mb, CASE state WHEN 'queued' THEN waited_seconds + coalesce(extract(epoch FROM now() - waiting_since), 0)::float END AS seconds_waiting,
    -- Somebody led it, and its images were open: from a run's first iteration to the run's end.
    coalesce((SELECT sum(greatest(0, extract(epoch FROM coalesce(r.ended_at, now()) - greatest(r.started_at, i.opened_at))))
        FROM classgan.runs AS r JOIN classgan.iterations AS i ON i.training_id = r.training_id AND i.number = r.first_iteration
        WHERE r.training_id = trainings.id), 0)::float AS seconds_trained,
    CASE WHEN state IN ('succeeded', 'failed', 'cancelled') THEN (SELECT max(r.ended_at) FROM classgan.runs AS r WHERE r.training_id = trainings.id) END AS ended_at
FROM classgan.trainings;

-- `seconds` are those of a closed one's training: between two runs, nobody led it.
CREATE VIEW watch.iterations AS
SELECT training_id, number, quorum, position, opened_at, closed_at, images, contributions, workers, g_loss, d_loss, d_real_accuracy, d_fake_accuracy,
    greatest(0, extract(epoch FROM closed_at - opened_at) - coalesce((
        SELECT sum(extract(epoch FROM least(closed_at, pauses.ended) - greatest(opened_at, pauses.began)))
        FROM (SELECT ended_at AS began, lead(started_at) OVER (ORDER BY number) AS ended FROM classgan.runs WHERE training_id = i.training_id) AS pauses
        WHERE pauses.began < closed_at AND pauses.ended > opened_at), 0))::float AS seconds
FROM classgan.iterations AS i;

-- The open iteration of each training: how much it needs or expects, how much it has, and where it closes in time, when that is.
CREATE VIEW watch.rounds AS
SELECT t.id AS training_id, coalesce(i.quorum, 0) AS quorum, u.gathered, u.open, u.leased,
    extract(epoch FROM i.closes_at - now())::float AS seconds_left
FROM classgan.trainings AS t
LEFT JOIN classgan.iterations AS i ON i.training_id = t.id AND i.number = t.iteration
CROSS JOIN LATERAL (
    SELECT coalesce(sum(images) FILTER (WHERE state = 'done'), 0)::bigint AS gathered,
        count(*) FILTER (WHERE state = 'open') AS open, count(*) FILTER (WHERE state = 'leased') AS leased
    FROM classgan.units WHERE training_id = t.id AND iteration = t.iteration
) AS u;

CREATE VIEW watch.waiting AS
SELECT count(*) AS machines FROM classgan.waiting;

CREATE VIEW watch.coordinators AS
SELECT training_id, leads, extract(epoch FROM now() - last_seen)::float AS seconds_silent FROM classgan.coordinators;

-- A machine says itself what it is: only numbers within limits, and short texts, come through.
-- What was said about somebody's honesty is between them and the instructor.
CREATE VIEW watch.machines AS
SELECT w.id, w.student_id, s.display_name AS student, classgan.machine(s.login, w.name) AS machine, w.device,
    classgan.plain(coalesce(h.gpu->>'name', ''), 60) AS gpu,
    classgan.amount(h.gpu->'memory_mb', 1e7)::bigint AS gpu_memory_mb,
    classgan.amount(w.hardware->'cores', 4096)::integer AS cores,
    classgan.amount(w.hardware->'memory_mb', 1e8)::bigint AS memory_mb,
    w.images_per_second, w.registered_at, extract(epoch FROM now() - w.last_seen)::float AS seconds_silent,
    l.training_id AS working_on, coalesce(l.units, 0) AS units_in_hand, l.seconds AS seconds_in_hand,
    CASE WHEN w.message LIKE 'suspended:%' THEN 'suspended'
         WHEN w.message LIKE '%recomputed and is invalid%' THEN 'one of its answers is invalid'
         ELSE classgan.public(w.message) END AS message
FROM classgan.workers AS w
JOIN classgan.students AS s ON s.id = w.student_id
CROSS JOIN LATERAL (SELECT w.hardware->'gpus'->coalesce(substring(w.device FROM '^cuda:(\d{1,2})$')::integer, 0) AS gpu) AS h
LEFT JOIN (
    SELECT worker_id, max(training_id) AS training_id, sum(units)::integer AS units,
        extract(epoch FROM now() - min(claimed_at))::float AS seconds
    FROM classgan.leases WHERE ended_at IS NULL GROUP BY worker_id
) AS l ON l.worker_id = w.id;

-- Every answer of a machine, without what it contains; claimed_at is empty once the lease is forgotten.
CREATE VIEW watch.answers AS
SELECT c.training_id, c.iteration, c.worker_id AS machine_id, c.verdict, c.credited, c.units, c.images, c.seconds, l.claimed_at, c.submitted_at
FROM classgan.contributions AS c LEFT JOIN classgan.leases AS l ON l.id = c.lease_id;

-- How many contributions of a training were recomputed, and what came of it; empty where that is still to come. Whose they were is not said.
CREATE VIEW watch.checks AS
SELECT training_id, valid, count(*) AS checks FROM classgan.checks GROUP BY training_id, valid;

CREATE VIEW watch.leaderboard AS
SELECT l.student_id, l.display_name, l.units, l.images, count(w.id) AS machines,
    coalesce(sum(w.images_per_second) FILTER (WHERE w.last_seen > now() - interval '1 minute'), 0)::float AS images_per_second,
    extract(epoch FROM now() - max(w.last_seen))::float AS seconds_silent
FROM classgan.ledger AS l LEFT JOIN classgan.workers AS w ON w.student_id = l.student_id
GROUP BY l.student_id, l.display_name, l.units, l.images;

CREATE VIEW watch.events AS
SELECT e.id, e.training_id, t.name AS training, e.at, e.kind, e.iteration, classgan.public(e.text) AS text
FROM classgan.events AS e JOIN classgan.trainings AS t ON t.id = e.training_id
WHERE e.kind NOT IN ('invalid', 'fast', 'suspended');

CREATE VIEW watch.samples AS
SELECT training_id, iteration, png, created_at FROM classgan.samples;

REVOKE ALL ON ALL TABLES IN SCHEMA watch FROM PUBLIC;
GRANT USAGE ON SCHEMA watch TO classgan_viewer, classgan_owner;
GRANT SELECT ON ALL TABLES IN SCHEMA watch TO classgan_viewer;
GRANT SELECT ON watch.leaderboard TO classgan_owner;

-- What a student sees of their own: each machine, its credit, and what was last said to it.
-- Called by `classgan my`.
CREATE FUNCTION student.my_machines() RETURNS TABLE (
    machine text, device text, seconds_silent float, images_per_second float, units bigint, images bigint, late bigint, refused bigint, message text
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
    SELECT w.name, w.device, extract(epoch FROM now() - w.last_seen)::float, w.images_per_second,
        coalesce(sum(c.units) FILTER (WHERE c.credited), 0)::bigint, coalesce(sum(c.images) FILTER (WHERE c.credited), 0)::bigint,
        count(c.id) FILTER (WHERE c.verdict = 'late'), count(c.id) FILTER (WHERE c.verdict = 'refused'), w.message
    FROM workers AS w LEFT JOIN contributions AS c ON c.worker_id = w.id
    WHERE w.student_id = student.whoami() GROUP BY w.id ORDER BY w.last_seen DESC
$$;

CREATE FUNCTION student.leaderboard() RETURNS TABLE (
    display_name text, units bigint, images bigint, machines bigint, images_per_second float, seconds_silent float, is_me boolean
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
DECLARE
    me bigint := student.whoami();
BEGIN
    RETURN QUERY SELECT b.display_name, b.units, b.images, b.machines, b.images_per_second, b.seconds_silent, b.student_id = me
        FROM watch.leaderboard AS b ORDER BY b.images DESC, b.display_name;
END $$;
