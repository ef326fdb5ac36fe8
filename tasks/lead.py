"""Become a training's coordinator."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gan_core.plan import Plan
from gan_core.settings import settings

if TYPE_CHECKING:
    from gan_core.coordinator import Coordinator

log = logging.getLogger("classgan.lead")


@contextmanager
def lead(name: str, plan: Plan) -> Generator["Coordinator"]:
    """The coordinator of this training, continued where it stood; its failure is written down in words.

    A training that a person pauses or cancels meanwhile ends the block without an error.

    Raises:
        GanError: the training can't be started or continued; the sentence says why.
    """
    from gan_core.coordinator import Coordinator, Finished

    mine = settings()
    with Coordinator(mine.database_url, name, plan, mine.cache, mine.data) as training:
        try:
            yield training
        except Finished as exc:
            log.info("Training %r: %s by a person, after iteration %d.", name, exc, training.state.iteration)
        except Exception as exc:
            training.fail(str(exc))
            raise
