"""What fails on somebody's device becomes a row that says so: to learn it, `make gpu-check` is run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bench.report import Judgement, Row, Section
from gan_core.devices.hardware import forget_memory, in_words, is_out_of_memory

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """What was raised instead of an answer."""

    words: str
    is_full: bool  # too little memory is no fault of the device: such a plan goes to the next one

    def row(self, label: str, cells: int) -> Row:
        """In a table with so many cells a row."""
        judgement = None if self.is_full else Judgement("no error", False)
        return Row(label=label, cells=(self.words, *("" for _ in range(cells - 1))), figures={}, judgement=judgement)


def tried(device: str, measure: Callable[[], T]) -> T | Fault:
    """What it returns, or what it has raised. The device's memory is free again in both cases."""
    try:
        return measure()
    except Exception as exc:  # noqa: BLE001  whatever a device raises is what one wants to know
        fault = Fault(f"{type(exc).__name__}: {in_words(exc)}", is_out_of_memory(exc))
    forget_memory(device)  # only now: the exception held what the attempt had made
    return fault


def section_tried(name: str, measure: Callable[[str, bool], Section], device: str, small: bool) -> Section:
    """The section; one of this name that says what has ended it, if something has."""
    found = tried(device, lambda: measure(device, small))
    if isinstance(found, Section):
        return found
    title, rows = f"ended early on {device}", (found.row("the whole section", 1),)
    return Section(name=name, title=title, columns=("what happened",), ratio="", rows=rows, notes=on_memory([found]))


def on_memory(found: Sequence[object]) -> tuple[str, ...]:
    """The note for a section in which something didn't fit into the device's memory."""
    if not any(isinstance(one, Fault) and one.is_full for one in found):
        return ()
    return ("What doesn't fit into this device's memory isn't computed on it in a class: the next device takes it.",)
