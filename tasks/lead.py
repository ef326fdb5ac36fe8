"""Become a training's coordinator."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gan_core.plan import Plan
from gan_core.settings import settings

if TYPE_CHECKING:
    from gan_core.coordinator import Coordinator


@contextmanager
def lead(name: str, plan: Plan) -> Iterator["Coordinator"]:
    """The coordinator of this training, continued where it stood; its failure is written down in words.

    Raises:
        GanError: the training can't be started or continued; the sentence says why.
    """
    from gan_core.coordinator import Coordinator, Finished

    with Coordinator(settings().database_url, name, plan, settings().cache) as training:
        try:
            yield training
        except Finished:
            raise
        except Exception as exc:
            training.fail(str(exc))
            raise
