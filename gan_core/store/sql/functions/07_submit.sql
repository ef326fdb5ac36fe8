-- Stores a contribution if every unit of its lease still waits for one, and says what became of it.
-- Called by a worker with a finished lease. Done once, it can be repeated without harm.
CREATE FUNCTION student.submit(
    p_lease bigint, p_boot uuid, p_seconds float, p_g_loss float, p_d_loss float,
    p_d_real_accuracy float, p_d_fake_accuracy float, p_payload bytea, p_trail bytea DEFAULT NULL, p_images float DEFAULT NULL
) RETURNS TABLE (verdict classgan.verdict, reason text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = classgan, pg_temp AS $$
#variable_conflict use_column
DECLARE
    mine leases%ROWTYPE;
    training trainings%ROWTYPE;
    plan jsonb;  -- that it was handed out with
    is_cut boolean := true;
    held integer;
    done_id bigint;
    answer classgan.verdict := 'accepted';
    why text := '';
    blameless boolean;
BEGIN
    SELECT l.* INTO mine FROM leases AS l JOIN workers AS w ON w.id = l.worker_id
    WHERE l.id = p_lease AND l.boot_id = p_boot AND w.student_id = student.whoami()
    FOR UPDATE OF l;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'foreign'::verdict, format('lease %s does not belong, or no longer belongs, to this start of your worker', p_lease);
        RETURN;
    END IF;
    PERFORM FROM contributions AS c WHERE c.lease_id = p_lease;
    IF FOUND THEN
        RETURN QUERY SELECT 'duplicate'::verdict, 'this lease was submitted before';
        RETURN;
    END IF;

    -- Locked in this order everywhere: lease, units, worker. Closing an iteration waits here for a submit that came first.
    PERFORM FROM units AS u WHERE u.lease_id = mine.units_of ORDER BY u.ordinal FOR UPDATE;
    SELECT * INTO training FROM trainings WHERE id = mine.training_id;
    plan := classgan.plan_of(mine.training_id, mine.plan_version);
    IF p_images < mine.images AND mine.second_of IS NULL AND classgan.seconds_left(mine.training_id, mine.iteration) IS NOT NULL THEN
        is_cut := p_images >= 1 AND classgan.cut_lease(mine.id, p_images::bigint, (plan->>'batch_size')::integer);
        SELECT * INTO mine FROM leases WHERE id = p_lease;
    END IF;
    SELECT count(*) INTO held FROM units AS u WHERE u.lease_id = mine.units_of AND u.state IN ('leased', 'open');
    IF mine.second_of IS NOT NULL AND mine.ended_at IS NULL THEN
        held := mine.units;  -- it has none of its own, and none is waited for
    END IF;
    IF mine.outcome IN ('given back', 'spoiled') THEN
        answer := 'late';
        why := 'the lease was given back';
    ELSIF held < mine.units THEN
        answer := 'late';
        why := CASE
            WHEN training.iteration > mine.iteration THEN format('iteration %s closed before this answer came', mine.iteration)
            WHEN EXISTS (SELECT FROM units AS u WHERE u.lease_id = mine.units_of AND u.state = 'done') THEN 'another worker''s answer for the same units came first'
            ELSE 'the lease ran out and another worker took over' END;
    ELSIF NOT is_cut THEN
        answer := 'refused';
        why := format('it holds %s of %s images, and none of its batches ends there', p_images, mine.images);
    ELSIF octet_length(p_payload) <> training.payload_bytes THEN
        answer := 'refused';
        why := format('payload has %s bytes, this training''s have %s', octet_length(p_payload), training.payload_bytes);
    END IF;
    -- Late through no fault of the worker: its lease had not run out, the class was just faster. And not so late that
    -- nobody could recompute it any more: what can't be checked earns nothing.
    blameless := answer = 'accepted' OR (
        answer = 'late' AND (plan->>'credit_late')::boolean AND octet_length(p_payload) = training.payload_bytes
        AND mine.outcome IN ('', 'the iteration closed', 'another answer came first')
        AND EXISTS (SELECT FROM weights AS w WHERE w.training_id = mine.training_id AND w.iteration = mine.iteration)
        AND mine.units = (SELECT count(*) FROM units AS u WHERE u.lease_id = mine.units_of));

    INSERT INTO contributions (
        training_id, iteration, lease_id, worker_id, verdict, reason, credited, first_ordinal, units, images, seconds,
        g_loss, d_loss, d_real_accuracy, d_fake_accuracy
    ) VALUES (
        mine.training_id, mine.iteration, mine.id, mine.worker_id,
        CASE WHEN answer = 'accepted' AND mine.second_of IS NOT NULL THEN 'second' ELSE answer END, why, blameless, mine.first_ordinal, mine.units, mine.images,
        classgan.within(p_seconds, 0, extract(epoch FROM clock_timestamp() - mine.claimed_at)::float), classgan.within(p_g_loss, -1e6, 1e6),
        classgan.within(p_d_loss, -1e6, 1e6), classgan.within(p_d_real_accuracy, 0, 1), classgan.within(p_d_fake_accuracy, 0, 1)
    ) RETURNING id INTO done_id;
    UPDATE leases SET ended_at = now(), outcome = (SELECT c.verdict::text FROM contributions AS c WHERE c.id = done_id) WHERE id = mine.id;

    IF answer = 'accepted' AND mine.second_of IS NOT NULL THEN  -- to be compared with the first one, never averaged
        UPDATE workers SET last_seen = now(), message = '' WHERE id = mine.worker_id;
    ELSIF answer = 'accepted' THEN
        INSERT INTO gradients (contribution_id, payload) VALUES (done_id, p_payload);
        UPDATE units SET state = 'done', contribution_id = done_id WHERE lease_id = mine.units_of;
        UPDATE workers SET last_seen = now(), message = '' WHERE id = mine.worker_id;
        PERFORM pg_notify('classgan_submitted', mine.training_id::text);
    ELSE
        UPDATE units SET state = 'open' WHERE lease_id = mine.units_of AND state = 'leased'
        AND NOT EXISTS (SELECT FROM leases WHERE units_of = mine.units_of AND ended_at IS NULL);
        IF FOUND AND classgan.hands_out(mine.training_id, mine.iteration) THEN  -- after most late answers, nothing is to be had
            PERFORM pg_notify('classgan_work', '');
        END IF;
        UPDATE workers SET last_seen = now(), message = why WHERE id = mine.worker_id;
        PERFORM classgan.note(mine.training_id, mine.iteration, answer::text, format(
            'An answer of %s for %s of iteration %s did not enter the model: %s.', classgan.called(mine.worker_id),
            CASE mine.units WHEN 1 THEN 'unit ' || mine.first_ordinal ELSE mine.units || ' units' END, mine.iteration, why));
    END IF;
    IF blameless THEN
        -- Its speed as this clock saw it, from claim to answer; a moving average, since laptops get busy and idle.
        UPDATE workers SET images_per_second =
            coalesce(0.7 * images_per_second, 0)
            + CASE WHEN images_per_second IS NULL THEN 1 ELSE 0.3 END
            * mine.images / greatest(0.001, extract(epoch FROM clock_timestamp() - mine.claimed_at))
        WHERE id = mine.worker_id;
        PERFORM classgan.choose_check(done_id, mine.id, p_payload, p_trail);
    END IF;
    RETURN QUERY SELECT answer, why;
END $$;
