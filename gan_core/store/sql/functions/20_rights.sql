-- A student may call the functions of schema `student`, and nothing else.
-- Run last: it covers every function that the files before it made.
REVOKE ALL ON SCHEMA classgan FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA classgan FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA classgan FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA student FROM PUBLIC;
GRANT USAGE ON SCHEMA student TO classgan_student;
GRANT EXECUTE ON FUNCTION
    student.register(text, uuid, text, jsonb, uuid),
    student.claim(bigint, uuid),
    student.read_training(bigint),
    student.weights(bigint, integer),
    student.submit(bigint, uuid, float, float, float, float, float, bytea),
    student.heartbeat(bigint, uuid),
    student.release(bigint, uuid, text, boolean),
    student.my_credit(),
    student.leaderboard()
TO classgan_student;
