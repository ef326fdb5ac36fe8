"""Images from the Hugging Face Hub: a data set in Parquet files, or a zip in any repository.

`huggingface:OWNER/NAME[/FOLDER][@REVISION]` takes the Parquet files of the training split (those with `train` in their
path; all of them if none has), in the order of their names: each is a part. `huggingface:OWNER/NAME/PATH.zip` takes a zip.
A branch or no revision at all becomes the commit that it means now, so that all machines of a training read the same.
"""

import bisect
import importlib.util
import json
import re
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from gan_core.data.decoding import Reading
from gan_core.data.downloads import Remote, fetch
from gan_core.data.image_cache import Files
from gan_core.data.sources import Part, Source, Where, digest, zip_files
from gan_core.errors import DataError
from gan_core.files import move

PLACE = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(/(?P<path>[^@]+?))?/?(@(?P<revision>[\w./-]+))?")
COMMIT = re.compile(r"[0-9a-f]{40}")
PATIENCE = 30.0  # seconds for the list of files


def huggingface(place: str, where: Where) -> Source:
    """A data set or a zip on the hub; only the list of its files is fetched now.

    Raises:
        DataError: the hub doesn't answer, has no such thing, or it holds no images.
    """
    if importlib.util.find_spec("huggingface_hub") is None or importlib.util.find_spec("pyarrow") is None:
        raise DataError(f"huggingface:{place} needs two more packages. Run `pip install 'classgan[hub]'`.")
    match = PLACE.fullmatch(place)
    if match is None:
        raise DataError(
            f"huggingface:{place} can't be read. Write huggingface:OWNER/NAME, or OWNER/NAME/PATH.zip, with "
            "@REVISION at the end for another one than the newest."
        )
    repo, path, revision = match["repo"], match["path"] or "", match["revision"] or ""
    listing = _listing(repo, revision, where.downloads)
    chosen = _chosen(listing["files"], path)
    if not chosen:
        what = f"no file {path}" if path.endswith(".zip") else f"no Parquet file{f' below {path}' if path else ''}"
        zips = ", ".join(name for name in listing["files"] if name.endswith(".zip"))
        raise DataError(
            f"{repo} has {what} at {listing['commit'][:12]}. "
            + (f"Zips there: {zips}." if zips else "Choose a data set whose page shows Parquet files.")
        )
    folder = where.downloads / repo.replace("/", "--") / listing["commit"]
    parts = [_part(repo, listing, name, folder / name, where) for name in chosen]
    name = f"huggingface:{repo}{f'/{path}' if path else ''}@{listing['commit']}"
    return Source(name, parts, where.reading, fetched=True)


def _chosen(files: Sequence[str], path: str) -> list[str]:
    if path.endswith(".zip"):
        return [name for name in files if name == path]
    parquet = [name for name in sorted(files) if name.endswith(".parquet") and name.startswith(path and path + "/")]
    return [name for name in parquet if "train" in name] or parquet


def _listing(repo: str, revision: str, downloads: Path) -> dict[str, Any]:
    """{kind, commit, files: {name: [size, sha256, git's sha1]}}; kept, so that a pinned one needs no network later."""
    kept = downloads / repo.replace("/", "--")
    if COMMIT.fullmatch(revision) and (kept / f"{revision}.json").is_file():
        return json.loads((kept / f"{revision}.json").read_bytes())
    kind, info = _asked(repo, revision)
    # They become paths here, and whoever answers for the hub need not be the hub.
    odd = [
        file.rfilename
        for file in info.siblings
        if ".." in PurePosixPath(file.rfilename).parts or file.rfilename[:1] == "/"
    ]
    if odd or not COMMIT.fullmatch(info.sha or ""):
        raise DataError(
            f"{repo} lists file names or hashes that are impossible: {', '.join(odd) or info.sha}. Nothing was fetched."
        )
    files = {
        file.rfilename: [file.size or 0, file.lfs.sha256 if file.lfs else "", file.blob_id or ""]
        for file in info.siblings
    }
    listing = {"kind": kind, "commit": info.sha, "files": files}
    kept.mkdir(parents=True, exist_ok=True)
    part = kept / f"{info.sha}.json.{threading.get_ident()}.part"
    part.write_text(json.dumps(listing), encoding="utf-8")
    move(part, kept / f"{info.sha}.json")
    return listing


def _asked(repo: str, revision: str) -> tuple[str, Any]:
    """The repository as the hub knows it: a data set, or else a model, since some keep a zip there."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    hub = HfApi()
    for kind in ("dataset", "model"):
        try:
            return kind, hub.repo_info(
                repo, repo_type=kind, revision=revision or None, files_metadata=True, timeout=PATIENCE
            )
        except GatedRepoError as exc:
            raise DataError(
                f"{repo} is gated: its owner decides who may read it. Accept its terms on {hub.endpoint}, log in with "
                "`hf auth login`, or choose other data."
            ) from exc
        except RevisionNotFoundError as exc:
            raise DataError(f"{repo} has no revision {revision!r}. Leave it out for the newest.") from exc
        except RepositoryNotFoundError:
            continue
        except Exception as exc:  # several HTTP libraries' worth of them
            raise DataError(f"{hub.endpoint} can't be asked about {repo}: {exc}. Try again when it answers.") from exc
    raise DataError(f"There is no public {repo} on {hub.endpoint}. Check owner and name; a private one needs a login.")


def _part(repo: str, listing: dict[str, Any], name: str, path: Path, where: Where) -> Part:
    from huggingface_hub import constants, hf_hub_url

    size, sha256, sha1 = listing["files"][name]
    url = hf_hub_url(repo, name, repo_type=listing["kind"], revision=listing["commit"], endpoint=constants.ENDPOINT)
    remote = Remote(url, size, sha256, sha1)
    opened = partial(zip_files, reading=where.reading)
    if not name.endswith(".zip"):
        opened = partial(_parquet_files, reading=where.reading, url=url)

    @contextmanager
    def files() -> Generator[Files]:
        from huggingface_hub.utils import build_hf_headers

        with opened(fetch(remote, path, build_hf_headers(), where.progress)) as found:
            yield found

    return Part(digest(sha256 or sha1, name), files)


@contextmanager
def _parquet_files(path: Path, reading: Reading, url: str) -> Generator[Files]:
    """The images of one Parquet file. Only one row group is in memory: they are read in order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path)
    except (OSError, pa.ArrowInvalid) as exc:
        raise DataError(f"{path} can't be read as Parquet ({exc}). Delete it, and it is fetched again.") from exc
    with table:
        column, label = _columns(table.schema_arrow, url)
        sizes = [table.metadata.row_group(g).num_rows for g in range(table.num_row_groups)]
        ends = [sum(sizes[: g + 1]) for g in range(len(sizes))]
        lock, held = threading.Lock(), (-1, None)

        def read(index: int) -> bytes:
            nonlocal held
            group = bisect.bisect_right(ends, index)
            with lock:
                if held[0] != group:
                    rows = table.read_row_group(group, columns=[f"{column}.bytes"]).column(0)
                    held = group, rows
                value = held[1][index - ends[group] + sizes[group]].as_py()  # ty: ignore[not-subscriptable]
            return value["bytes"] or b""

        labels = None
        if label:
            values = table.read(columns=[label]).column(0).to_pylist()
            labels = None if None in values else [int(value) for value in values]
        names = [f"{i:07}" for i in range(table.metadata.num_rows)]
        yield Files(url, names, read, reading.picture, lambda: None, labels)


def _columns(schema: Any, url: str) -> tuple[str, str | None]:
    """(image, label): the columns that the data set's features call Image and ClassLabel, or that look like it."""
    import pyarrow as pa

    about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = about.get("info", {}).get("features", {})
    kinds = {name: feature.get("_type") for name, feature in features.items() if isinstance(feature, dict)}
    looks = {
        field.name: "Image"
        for field in schema
        if pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
    }
    looks |= {f.name: "ClassLabel" for f in schema if f.name == "label" and pa.types.is_integer(f.type)}
    known = looks | {name: kind for name, kind in kinds.items() if name in schema.names}
    images = [name for name in schema.names if known.get(name) == "Image"]
    if not images:
        raise DataError(f"{url} has no column of images; it has {', '.join(schema.names)}. Choose an image data set.")
    return images[0], next((name for name in schema.names if known.get(name) == "ClassLabel"), None)
