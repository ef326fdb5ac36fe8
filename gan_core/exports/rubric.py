"""The rubric: how work becomes a mark, and how that mark came about line by line."""

from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from gan_core.errors import RubricError
from gan_core.store.viewers.work_done import Work

CRITERIA = ("work", "consistency", "timeliness", "quality")
Number = Annotated[float, Field(allow_inf_nan=False)]


class Criterion(BaseModel):
    """One line of the rubric."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weight: Annotated[Number, Field(ge=0, le=1000)]
    full_at: Annotated[Number, Field(gt=0, le=1_000_000)]  # the value from which on it counts in full


class Rubric(BaseModel):
    """Every number that a mark depends on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f=+\-@\s][^\x00-\x1f]*$")]
    points: Annotated[Number, Field(gt=0, le=1000)]
    cap: Annotated[Number, Field(ge=1, le=10)]
    normalise: bool
    period: Literal["hour", "day", "week"]
    time_zone: str
    due: datetime | None
    work: Criterion
    consistency: Criterion
    timeliness: Criterion
    quality: Criterion

    @field_validator("time_zone")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name not in available_timezones():
            raise ValueError("there is no such time zone. Write one like UTC or Europe/Berlin")
        return name

    @model_validator(mode="after")
    def _something_counts(self) -> Self:
        if not sum(getattr(self, name).weight for name in CRITERIA):
            raise ValueError("all weights are 0. Give at least one line a weight")
        for name in CRITERIA[1:]:
            if (full := getattr(self, name).full_at) > 1:
                raise ValueError(f"{name}.full_at is {full:g}, but {name} lies between 0 and 1. Write at most 1")
        return self

    @property
    def deadline(self) -> datetime | None:
        """The due moment in UTC; without a zone of its own it is meant in the class's."""
        if self.due is None:
            return None
        return (self.due if self.due.tzinfo else self.due.replace(tzinfo=ZoneInfo(self.time_zone))).astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Line:
    """One criterion of one student."""

    name: str
    value: float
    full_at: float
    share: float  # of full work, 0 to 1: the other lines count as far as there is work
    score: float  # 0 to the cap
    of: float  # points that it can bring at a score of 1
    points: float  # that it brings


@dataclass(frozen=True, slots=True)
class Mark:
    """One student's mark, and the lines that add up to it."""

    points: float
    lines: tuple[Line, ...]


def default_text() -> str:
    """The rubric that comes with the package, with its comments."""
    return files("gan_core.exports").joinpath("rubric.yaml").read_text(encoding="utf-8")


def read(path: Path | None = None) -> Rubric:
    """The rubric in this file; what it leaves out is as in the default, which is also the one without a file.

    Raises:
        RubricError: a sentence about each fault.
    """
    import yaml

    given, where = {}, path or "The default rubric"
    if path is not None:
        try:
            given = yaml.safe_load(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as exc:
            raise RubricError(f"{path} is no UTF-8 text. Save it as UTF-8.") from exc
        except yaml.YAMLError as exc:
            raise RubricError(f"{path} is no YAML: {' '.join(str(exc).split())}.") from exc
    if not isinstance(given, dict):
        raise RubricError(f"{path} is no rubric: expected lines like `points: 100`, as in the default.")
    values = yaml.safe_load(default_text())
    for name, value in given.items():
        whole = not (name in CRITERIA and isinstance(value, dict))
        values[name] = value if whole else values[name] | value
    try:
        return Rubric.model_validate(values)
    except ValidationError as exc:
        faults = []
        for error in exc.errors():
            field = ".".join(str(part) for part in error["loc"])
            if error["type"] == "extra_forbidden":
                faults.append(f"{field}: a rubric has no such line. Lines: {', '.join(Rubric.model_fields)}")
            else:
                text = error["msg"].removeprefix("Value error, ")
                faults.append(f"{field}: {text} (got {error['input']!r})" if field else text)
        raise RubricError(f"{where} can't be used:\n  " + "\n  ".join(faults)) from exc


def values_of(rubric: Rubric, work: Work) -> dict[str, float]:
    """What each criterion measures. A student who handed nothing in has 0 in all."""
    return {
        "work": work.hours if rubric.normalise else work.images / 100_000,
        "consistency": work.consistency,
        "timeliness": work.in_time / (work.credited + work.late) if work.credited else 0.0,
        "quality": 1 - work.rejected_share if work.credited else 0.0,
    }


def mark(rubric: Rubric, work: Work) -> Mark:
    """points × min(1, Σ weight · share · min(cap, value / full_at) / Σ weight), to two decimals.

    `share` is 1 for work, and for the rest min(1, work / full_at of work): one good contribution is no third of a mark.
    The sum is rounded after each line and a line is what it adds, so that the lines add up to the mark exactly.
    """
    total = sum(getattr(rubric, name).weight for name in CRITERIA)
    values = values_of(rubric, work)
    done = min(1.0, values["work"] / rubric.work.full_at) if rubric.work.weight else 1.0
    lines, exact, shown = [], 0.0, 0.0
    for name, value in values.items():
        criterion = getattr(rubric, name)
        of = rubric.points * criterion.weight / total
        share = 1.0 if name == "work" else done
        score = share * min(rubric.cap, value / criterion.full_at)
        exact = min(rubric.points, exact + of * score)
        sofar = round(exact, 2)
        lines.append(Line(name, value, criterion.full_at, share, score, of, round(sofar - shown, 2)))
        shown = sofar
    return Mark(shown, tuple(lines))
