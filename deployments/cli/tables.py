"""Tables that fit: on a terminal nothing is cut, whatever its width; into a pipe goes everything, one line a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

LEAST = 20  # columns of the screen that words get at least, before a column gives way for them
GAP = 2  # between two columns
INDENT = 4


class Listing:
    """Rows of one kind. On a terminal that is too narrow for them, words are folded at blanks; then columns that matter
    least are left out; and what is still too wide is shown as one block a row.
    """

    def __init__(self, *columns: str, folds: Iterable[str] = (), spare: Iterable[str] = (), title: str = "") -> None:
        """
        Args:
            columns: their headings.
            folds: those with words, which may go on on the next line.
            spare: those that may be left out, the first one first.
            title: the one that heads a row's block; the first, if left out.
        """
        self.columns, self.rows = columns, list[tuple[Text, ...]]()
        self._folds, self._spare, self._title = set(folds), tuple(spare), columns.index(title or columns[0])
        self._sections = set[int]()  # numbers of the rows that a line stands before

    def add(self, *cells: str | Text) -> None:
        """One more row. Texts are somebody's words: no markup, and no line breaks."""
        plain = (cell if isinstance(cell, Text) else Text(" ".join(cell.split())) for cell in cells)
        self.rows.append(tuple(plain))

    def section(self) -> None:
        """What comes now is about something else."""
        self._sections.add(len(self.rows))

    def lines(self) -> Iterator[str]:
        """For a pipe: everything, a line a row."""
        table = [self.columns, *([cell.plain for cell in row] for row in self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
        for row in table:
            padded = (cell + " " * (width - cell_len(cell) + GAP) for cell, width in zip(row, widths, strict=True))
            yield "".join(padded).rstrip()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table | Text]:
        shown = list(range(len(self.columns)))
        for name in ("", *self._spare):
            if name:
                shown.remove(self.columns.index(name))
            if widths := self._fitted(shown, options.max_width - GAP * len(shown) + 1):
                yield self._table(shown, widths)
                return
        yield from self._blocks(options.max_width)

    def _fitted(self, shown: Sequence[int], room: int) -> list[int]:
        """How wide each of these columns shall be; none if there is no room even for what can't be folded."""
        wanted, least = [], []
        for at in shown:
            heading, cells = self.columns[at], [row[at].plain for row in self.rows]
            wanted.append(max(map(cell_len, (heading, *cells))))
            folded = [heading, *(cells if self.columns[at] in self._folds else ())]
            longest = max(map(cell_len, (" ".join(folded).split() or [""])), default=0)
            if self.columns[at] in self._folds:
                least.append(max(longest, min(wanted[-1], LEAST)))
            else:
                least.append(max(longest, *map(cell_len, cells), 0))
        widths = least
        if sum(widths) > room:
            return []
        for _ in range(room - sum(widths)):
            poorest = min(range(len(shown)), key=lambda n: widths[n] / max(1, wanted[n]))
            if widths[poorest] >= wanted[poorest]:
                break
            widths[poorest] += 1
        return widths

    def _table(self, shown: Sequence[int], widths: Sequence[int]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, GAP - 1, 0, 0), pad_edge=False)
        for at, width in zip(shown, widths, strict=True):
            table.add_column(Text(self.columns[at]), width=width, overflow="fold")
        for number, row in enumerate(self.rows):
            if number in self._sections and number:
                table.add_section()
            table.add_row(*(row[at] for at in shown))
        return table

    def _blocks(self, width: int) -> Iterator[Text]:
        """Each row as its title, then one line a fact. What is longer than a line, the terminal breaks: it can be copied."""
        label = max(map(cell_len, self.columns)) + GAP
        for row in self.rows:
            yield Text(row[self._title].plain, "bold", no_wrap=True, overflow="ignore")
            for at, cell in enumerate(row):
                if at == self._title or not cell.plain:
                    continue
                heading = f"{' ' * INDENT}{self.columns[at]:<{label}}"
                beside = width - INDENT - label
                if max(map(cell_len, cell.plain.split())) > beside:
                    yield Text(heading.rstrip())
                    heading, beside = " " * INDENT, width - INDENT
                for line in wrap(cell.plain, beside, break_long_words=False, break_on_hyphens=False):
                    yield Text.assemble(heading, (line, cell.style), no_wrap=True, overflow="ignore")
                    heading = " " * cell_len(heading)
