"""Tables as files that a spreadsheet opens: text stays text."""

import csv
import io
from collections.abc import Iterable, Sequence

# OWASP, "CSV Injection"; the wide forms are what East Asian keyboards type, and spreadsheets take them too.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\0", "＝", "＋", "－", "＠")

Cell = str | int | float | None


def guarded(cell: Cell, guard: str = "'") -> Cell:
    """The cell, with a guard before text that a spreadsheet would run; also behind blanks, which some of them skip."""
    if isinstance(cell, str) and (cell.startswith(FORMULA_STARTS) or cell.lstrip().startswith(FORMULA_STARTS)):
        return guard + cell
    return cell


def csv_bytes(rows: Iterable[Sequence[Cell]], guard: str = "'", mark: bool = False) -> bytes:
    """RFC 4180 in UTF-8; `mark` puts the byte order mark before it by which Excel knows that."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([[guarded(cell, guard) for cell in row] for row in rows])
    return text.getvalue().encode("utf-8-sig" if mark else "utf-8")
