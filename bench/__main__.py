"""`python -m bench` measures everything, `python -m bench NAME ...` some of it."""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from rich.console import Console

from bench import (
    aggregation,
    agreement,
    byzantine,
    cache,
    claims,
    credit,
    crowd,
    grading,
    layout,
    links,
    opinions,
    placement,
    publish,
    quality,
    rush,
    scaling,
    share,
    shift,
    spoils,
    storage,
    traffic,
)
from bench.children import ChildFell
from bench.measure import Disturbance
from bench.options import Options
from bench.report import (
    Section,
    machine,
    print_section,
    print_summary,
    require_markers,
    write_json,
    write_markdown,
)

SECTIONS: Mapping[str, Callable[[Options], Section]] = MappingProxyType(
    {
        "shift": shift.run,
        "layout": layout.run,
        "publish": publish.run,
        "claims": claims.run,
        "crowd": crowd.run,
        "rush": rush.run,
        "share": share.run,
        "links": links.run,
        "storage": storage.run,
        "bytes": traffic.run,
        "cache": cache.run,
        "quality": quality.run,
        "scaling": scaling.run,
        "agreement": agreement.run,
        "aggregation": aggregation.run,
        "byzantine": byzantine.run,
        "spoils": spoils.run,
        "credit": credit.run,
        "opinions": opinions.run,
        "grades": grading.run,
        "placement": placement.run,
    }
)

WIDTH = 160


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Ratios measured side by side, with targets.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"sections to run: {', '.join(SECTIONS)} (all of them)"
    )
    parser.add_argument("--quick", action="store_true", help="tiny versions that only show that everything works")
    parser.add_argument(
        "--seconds", type=float, default=Options().seconds, help="of training a line in quality (%(default)g)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="also put the tables between this page's markers, in their sections' places",
    )
    parsed = parser.parse_args()
    if unknown := [name for name in parsed.names if name not in SECTIONS]:
        parser.error(f"there is no section {', '.join(unknown)}; choose from {', '.join(SECTIONS)}")
    if parsed.markdown and parsed.quick:
        parser.error("--quick measures nothing that belongs on a page: leave --markdown out")
    if parsed.markdown:
        try:
            require_markers(parsed.markdown)
        except ValueError as exc:
            parser.error(str(exc))
    return parsed


def main() -> None:
    asked, console = arguments(), Console()
    if not console.is_terminal:  # a file or a pipe has no edge where lines must end
        console = Console(width=WIDTH)
    options = Options(asked.quick, asked.seconds)
    console.print(f"{machine()}.{' A smoke run: its figures say nothing.' if asked.quick else ''}\n", highlight=False)
    sections = []
    for name in asked.names or SECTIONS:
        started, disturbance = time.monotonic(), Disturbance()
        with console.status(f"{name} ..."):
            section = SECTIONS[name](options)
        section = replace(section, notes=(*section.notes, disturbance.sentence()))
        sections.append(section)
        print_section(section, console)
        console.print(f"  {name} took {time.monotonic() - started:.0f} s\n", style="dim", highlight=False)
    print_summary(sections, console)
    if asked.json:
        write_json(asked.json, sections)
    if asked.markdown:
        write_markdown(asked.markdown, sections, tuple(SECTIONS))


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # either ends the database and the children in good order
        signal.signal(number, signal.default_int_handler)
    try:
        main()
    except ChildFell as exc:
        sys.exit(f"{exc}: no figures were written.")
    except KeyboardInterrupt:
        sys.exit("Interrupted: no figures were written.")
