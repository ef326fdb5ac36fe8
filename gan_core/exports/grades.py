"""The ledger as a file that a spreadsheet opens."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from gan_core.store.ledger import Credit

COLUMNS = ("login", "name", "units", "images", "seconds", "late", "refused", "first_contribution", "last_contribution")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def write_csv(path: Path, credits: Sequence[Credit]) -> None:
    """One row a student, in the ledger's order. UTF-8 with a mark, so that Excel shows accents. Whole or not at all."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for c in credits:
        writer.writerow(
            [
                _plain(c.login),
                _plain(c.display_name),
                c.units,
                c.images,
                f"{c.seconds:.1f}",
                c.late,
                c.refused,
                c.first_at.isoformat(timespec="seconds") if c.first_at else "",
                c.last_at.isoformat(timespec="seconds") if c.last_at else "",
            ]
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    working = path.with_name(f".{path.name}.part")
    working.write_text("\ufeff" + text.getvalue(), encoding="utf-8", newline="")
    working.replace(path)


def _plain(text: str) -> str:
    """A name as text: a spreadsheet would run what looks like a formula."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
