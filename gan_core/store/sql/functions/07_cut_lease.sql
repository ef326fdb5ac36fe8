-- Makes a lease end after its first so many images, which is where its machine stopped because its round closes; says whether a
-- batch ends there. What it didn't reach goes back: whole units as they are, the rest of one as a unit of its own.
-- Called by student.submit, which holds the lease and its units.
CREATE FUNCTION classgan.cut_lease(p_lease bigint, p_images bigint, p_batch integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = classgan, pg_temp AS $$
DECLARE
    mine leases%ROWTYPE;
    cut units%ROWTYPE;
    kept integer;  -- images of the unit that is cut
    batches integer;
    size integer;  -- of its smaller batches; the first of them have one image more
    larger integer;  -- how many have
    done integer;  -- batches of what is kept
BEGIN
    SELECT * INTO mine FROM leases WHERE id = p_lease;
    IF p_images <= 0 OR mine.units <> (SELECT count(*) FROM units WHERE lease_id = p_lease) THEN
        RETURN false;
    END IF;
    SELECT p_images - before INTO kept FROM (
        SELECT images, sum(images) OVER (ORDER BY ordinal) - images AS before FROM units WHERE lease_id = p_lease
    ) AS u WHERE before < p_images AND p_images < before + images;
    IF FOUND THEN
        SELECT u.* INTO cut FROM units AS u WHERE u.id = (
            SELECT id FROM (SELECT id, ordinal, sum(images) OVER (ORDER BY ordinal) AS after FROM units WHERE lease_id = p_lease) AS v
            WHERE after > p_images ORDER BY ordinal LIMIT 1);
        -- As `networks.inputs.sizes_of` cuts it: whoever recomputes what is kept must find the same batches in it.
        batches := greatest(1, round(cut.images::float / p_batch));
        size := cut.images / batches;
        larger := cut.images % batches;
        done := CASE WHEN kept <= larger * (size + 1) THEN kept / (size + 1) ELSE larger + (kept - larger * (size + 1)) / size END;
        IF kept <> done * size + least(done, larger) OR greatest(1, round(kept::float / p_batch)) <> done THEN
            RETURN false;
        END IF;
        -- A lease is cut once, so its number makes the new ordinal: a class that hands in together waits for no common lock.
        INSERT INTO units (training_id, iteration, ordinal, epoch, position, seed, images, indices, reach, state)
        SELECT cut.training_id, cut.iteration, 100000 + p_lease % 2000000000, cut.epoch, cut.position + kept, hashtextextended(format('%s after %s', cut.seed, kept), 0) & 9223372036854775807,
            cut.images - kept, cut.indices[kept + 1 :], cut.reach, CASE cut.state WHEN 'leased' THEN 'open' ELSE cut.state END;
        UPDATE units SET images = kept, indices = cut.indices[: kept] WHERE id = cut.id;
    END IF;
    UPDATE units SET lease_id = NULL, state = CASE state WHEN 'leased' THEN 'open' ELSE state END FROM (
        SELECT id, sum(images) OVER (ORDER BY ordinal) AS after FROM units WHERE lease_id = p_lease
    ) AS u WHERE units.id = u.id AND u.after > p_images;
    UPDATE leases SET images = p_images, units = (SELECT count(*) FROM units WHERE lease_id = p_lease) WHERE id = p_lease;
    IF classgan.hands_out(mine.training_id, mine.iteration) THEN
        PERFORM pg_notify('classgan_work', '');
    END IF;
    RETURN true;
END $$;
