"""A class to look at."""

import pytest
from crowd import fill

from gan_core.store import submissions


@pytest.fixture
def crowd(connection, tiny) -> int:
    """Twelve students, a training at work and one that waits, checks, and a refused contribution."""
    training = fill(connection, 12, 30, tiny)
    submissions.submit(connection, "waits", tiny.model_dump(mode="json"), {"gpus": 1, "memory_mb": 40_000, "min_workers": 1, "priority": 0, "max_workers": None}, owner="ada", key="")  # fmt: skip
    connection.execute("UPDATE classgan.trainings SET waiting_since = now() - interval '1 hour' WHERE name = 'waits'")
    connection.execute(
        "UPDATE classgan.contributions SET verdict = 'refused', credited = false WHERE id IN (SELECT id FROM classgan.contributions ORDER BY id DESC LIMIT 36)"
    )
    connection.execute(
        "INSERT INTO classgan.checks (contribution_id, training_id, iteration, student_id, worker_id, ordinals, images_per_second, checked_at, valid)"
        " SELECT c.id, c.training_id, c.iteration, w.student_id, w.id, '{0}', 1, now(), c.id %% 2 = 0 FROM classgan.contributions AS c"
        " JOIN classgan.workers AS w ON w.id = c.worker_id WHERE c.training_id = %s ORDER BY c.id LIMIT 10",
        (training,),
    )
    return training
