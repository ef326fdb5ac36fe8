"""What every student did, as a mark needs it; added up by classgan.work_done."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One student's work. Students without any have zeros."""

    login: str
    display_name: str
    roster: Mapping[str, Any]  # `key`, `email`, `columns` of the gradebook; empty for who came by hand
    suspended: str  # why; "" if not
    units: int  # credited, as are images and seconds
    images: int
    seconds: float  # as the student's machine reported them
    hours: float  # that the images take a usual device of that kind
    answers: int  # contributions of every kind
    credited: int
    in_time: int  # credited, and handed in by the due moment
    late: int  # too late, without credit
    rejected: int  # refused, or invalid when recomputed
    checked: int  # recomputed
    invalid: int  # of these
    first_at: datetime | None  # of the credited ones
    last_at: datetime | None
    active_days: int  # with credited work
    consistency: float  # 0: all in one period, 1: as much in each
    devices: str  # kinds, in order, with a space between
    rank: int  # by images; the same images, the same rank

    @property
    def rejected_share(self) -> float:
        """Of the answers, 0 to 1."""
        return self.rejected / self.answers if self.answers else 0.0


def done(connection: Connection, period: str = "day", zone: str = "UTC", due: datetime | None = None) -> list[Work]:
    """Everybody's work, the most images first.

    Args:
        period: of regularity: hour, day or week.
        zone: name of the time zone in which days begin.
        due: credited answers after this moment are not in time.
    """
    with connection.cursor(row_factory=class_row(Work)) as cursor:
        return cursor.execute("SELECT * FROM classgan.work_done(%s, %s, %s)", (period, zone, due)).fetchall()
