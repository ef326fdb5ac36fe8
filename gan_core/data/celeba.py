"""CelebA's aligned faces (Liu et al. 2015, arXiv:1411.7766): 202,599 JPEGs of 178 x 218, 40 attributes a face.

They are looked for on this machine first: a folder is used as it is, a zip is never unpacked. Otherwise torchvision
fetches them from the authors' Google Drive, which often refuses because too many people ask: then a zip from
elsewhere has to be put in one of the usual places.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from gan_core.data.decoding import Reading
from gan_core.data.sources import LabelsOf, Part, Source, Where, folder_part, size_and_time, zip_part
from gan_core.errors import DataError

ATTRIBUTE = "Smiling"  # labels, unless another is named: half of the faces do
ATTRIBUTES = "list_attr_celeba.txt"
FOLDERS = (".", "data", "celeba", "data/celeba", "data/celeba_torchvision/data")  # below the data folder
TICK = 1.0  # seconds between two progress reports while torchvision works


def celeba(place: str, where: Where) -> Source:
    """`celeba`, `celeba:PATH`, each with `#ATTRIBUTE` for other labels than Smiling.

    Raises:
        DataError: it is nowhere and can't be fetched, or there is no such attribute.
    """
    path, _, attribute = place.partition("#")
    found = _given(where.base / Path(path).expanduser()) if path else _usual(where.base)
    if found is None:
        _fetch(where)
        found = _usual(where.base)
    if found is None:
        raise DataError(
            f"CelebA was fetched, but there is no img_align_celeba below {where.base.resolve()}. Look what was "
            "fetched, and name its place: celeba:PATH."
        )
    name = "celeba" + (f":{path}" if path else "") + (f"#{attribute}" if attribute else "")
    return Source(name, [_part(found, attribute, where.reading)], where.reading, fetched=True)


def _usual(base: Path) -> Path | None:
    """A folder comes before a zip, as whoever unpacked it wanted."""
    candidates = [base / f / name for name in ("img_align_celeba", "img_align_celeba.zip") for f in FOLDERS]
    return next((c for c in candidates if c.is_file() or (c.is_dir() and any(c.iterdir()))), None)


def _given(path: Path) -> Path:
    inside = [path / "img_align_celeba", path / "img_align_celeba.zip"] if path.is_dir() else []
    return next((p for p in inside if p.exists()), path)


def _part(path: Path, attribute: str, reading: Reading) -> Part:
    """The images, with labels if the table of attributes lies beside them."""
    table = next((p for p in (path.parent / ATTRIBUTES, path / ATTRIBUTES) if p.is_file()), None)
    if attribute and table is None:
        raise DataError(
            f"Labels by {attribute!r} need {ATTRIBUTES} beside {path}, and it isn't there. Put it there, "
            f"or leave #{attribute} out."
        )
    make = zip_part if path.suffix.lower() == ".zip" else folder_part
    if table is None:
        return make(path, reading)
    wanted = attribute or ATTRIBUTE
    return make(path, reading, _labels(table, wanted), (wanted, size_and_time(table)))


def _labels(table: Path, attribute: str) -> LabelsOf:
    """0 or 1 for each file: does this face have the attribute? None if a file isn't in the table."""
    lines = table.read_text(encoding="ascii", errors="replace").splitlines()
    known = lines[1].split() if len(lines) > 1 else []  # the first line is the number of rows
    if attribute not in known:
        raise DataError(f"{table} knows no attribute {attribute!r}. Choose one of: {', '.join(known) or 'none'}.")
    column = 1 + known.index(attribute)
    has = {words[0]: int(words[column] == "1") for line in lines[2:] if len(words := line.split()) > column}

    def labels(names: Sequence[str]) -> Sequence[int] | None:
        found = [has.get(PurePosixPath(name).name) for name in names]
        return None if None in found else [label for label in found if label is not None]

    return labels


def _fetch(where: Where) -> None:
    def download() -> None:
        from torchvision.datasets import CelebA

        CelebA(str(where.base), split="all", download=True)

    try:
        while_telling(download, where)
    except (
        Exception
    ) as exc:  # torchvision and gdown raise anything: no module, no network, quota, a web page instead of the zip
        raise DataError(
            f"CelebA is not on this machine, and fetching it from Google Drive failed ({exc}). Put img_align_celeba.zip, as it is, "
            f"into {where.base.resolve()}, with {ATTRIBUTES} beside it if you want labels, or name its place: celeba:PATH."
        ) from exc


def while_telling(work: Callable[[], None], where: Where) -> None:
    """Does work that tells nobody how far it is; whoever waits learns every second that it goes on. Raises what it raises."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as exc:  # noqa: BLE001  raised again below
            failed.append(exc)

    thread = threading.Thread(target=run, name="fetching", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(TICK)
        where.progress(0, 1)
    if failed:
        raise failed[0]
