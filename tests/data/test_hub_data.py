"""Images from a hub: found by their features, pinned to a commit, fetched once, resumed, and believed only if their hash is right."""

import shutil
import threading

import pytest
from fake_hub import Repo
from picture_files import numbered, parquet, who, zipped

from gan_core.data import downloads
from gan_core.errors import DataError

COMMIT = "a" * 40
DATA = "huggingface:ada/faces"


@pytest.fixture
def faces(hub) -> Repo:
    """Twelve images in two training files, and two in a test file."""
    files = {
        "README.md": b"---\n---\n",
        "data/train-00000-of-00002.parquet": parquet(range(7)),
        "data/train-00001-of-00002.parquet": parquet(range(7, 12)),
        "data/test-00000-of-00001.parquet": parquet(range(100, 102)),
    }
    hub.repos["ada/faces"] = Repo("dataset", files)
    return hub.repos["ada/faces"]


def test_the_training_split_is_read_in_the_order_of_its_files(open_, faces, hub):
    images = open_(DATA)
    assert who_of(images) == list(range(12))
    assert images.labels.tolist() == [i % 2 for i in range(12)]
    assert [shard.images for shard in images.shards] == [7, 5]
    assert images.source == f"{DATA}@{COMMIT}"
    assert all(f"/resolve/{COMMIT}/" in asked for asked in hub.asked if "/resolve/" in asked)
    assert ((images.batch([11, 0, 7])[:, 0, 0, 0] + 1) * 127.5).round().tolist() == [11, 0, 7]


def who_of(images) -> list[int]:
    return ((images.batch(range(len(images)))[:, 0, 0, 0] + 1) * 127.5).round().int().tolist()


def test_without_features_the_image_is_the_column_with_bytes(open_, hub):
    hub.repos["ada/plain"] = Repo("dataset", {"a.parquet": parquet(range(4), features=False)})
    images = open_("huggingface:ada/plain")
    assert who_of(images) == [0, 1, 2, 3]
    assert images.labels is None
    assert [shard.images for shard in images.shards] == [4]


def test_a_zip_in_a_model_repository_is_read_like_any_zip(open_, hub, tmp_path):
    content = zipped(numbered(tmp_path / "a", 4), tmp_path / "a.zip").read_bytes()
    hub.repos["ada/model"] = Repo("model", {"data/a.zip": content})
    images = open_("huggingface:ada/model/data/a.zip")
    assert who(images) == [0, 1, 2, 3]
    assert images.fingerprint == open_(f"zip:{tmp_path / 'a.zip'}").fingerprint


def test_a_pinned_revision_needs_no_network_once_it_is_here(open_, faces, hub, tmp_path):
    pinned = open_(DATA).source
    faces.commit, asked = "b" * 40, len(hub.asked)
    again = open_(pinned)
    assert again.source == pinned
    assert len(hub.asked) == asked
    shutil.rmtree(tmp_path / "cache" / "downloads")
    with pytest.raises(DataError, match=f"ada/faces has no revision '{COMMIT}'"):
        open_(pinned)


def test_a_broken_download_goes_on_where_it_stopped(open_, hub):
    content = parquet(range(40), column="p" * 500)
    half = len(content) // 2
    hub.repos["ada/faces"], hub.breaks = Repo("dataset", {"a.parquet": content}), {"a.parquet": [half]}
    assert who_of(open_(DATA)) == list(range(40))
    assert hub.fetched == [("a.parquet", ""), ("a.parquet", f"bytes={half}-")]


def test_what_was_fetched_is_kept_when_the_network_stays_away(open_, hub):
    content = parquet(range(40))
    half = len(content) // 2
    hub.repos["ada/faces"], hub.breaks = Repo("dataset", {"a.parquet": content}), {"a.parquet": [half, *[0] * 20]}
    with pytest.raises(DataError, match=f"{half:,} of {len(content):,} bytes are here and are kept"):
        open_(DATA)
    hub.breaks.clear()
    assert who_of(open_(DATA)) == list(range(40))
    assert hub.fetched[-1] == ("a.parquet", f"bytes={half}-")


def test_damaged_bytes_are_thrown_away(open_, faces, tmp_path):
    name = "data/train-00000-of-00002.parquet"
    good = faces.files[name]
    bad = good[:500] + bytes([good[500] ^ 1]) + good[501:]
    listed = faces.info()
    faces.info = lambda: listed
    faces.files[name] = bad
    with pytest.raises(DataError, match="arrived damaged"):
        open_(DATA)
    assert not list((tmp_path / "cache").rglob("*.parquet*[!k]"))
    faces.files[name] = good
    assert who_of(open_(DATA)) == list(range(12))


@pytest.mark.parametrize(
    ("status", "sentence"),
    [(403, "is not public \\(403\\).* `hf auth login`"), (404, "does not exist"), (418, "the server answers 418")],
)
def test_a_refusal_ends_at_once_with_the_next_step(open_, faces, hub, status, sentence):
    hub.fail["data/train-00000-of-00002.parquet"] = [status]
    with pytest.raises(DataError, match=sentence):
        open_(DATA)
    assert len(hub.fetched) == 1


def test_a_busy_hub_is_asked_again(open_, faces, hub):
    hub.fail["data/train-00000-of-00002.parquet"] = [429, 503]
    assert len(open_(DATA)) == 12


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("huggingface:ada", "can't be read. Write huggingface:OWNER/NAME"),
        ("huggingface:ada/none", "There is no public ada/none on http"),
        (f"{DATA}@nothing", "ada/faces has no revision 'nothing'"),
        (f"{DATA}/b.zip", "ada/faces has no file b.zip at aaaaaaaaaaaa"),
        (f"{DATA}/sub", "ada/faces has no Parquet file below sub"),
    ],
)
def test_what_is_not_on_the_hub_is_named(open_, faces, data, sentence):
    with pytest.raises(DataError, match=sentence):
        open_(data)


def test_a_table_without_images_is_named_with_its_columns(open_, hub):
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["a"]}), out := io.BytesIO())
    hub.repos["ada/text"] = Repo("dataset", {"a.parquet": out.getvalue()})
    with pytest.raises(DataError, match="has no column of images; it has text"):
        open_("huggingface:ada/text")


def test_two_processes_fetch_a_file_once(open_, faces, hub):
    hub.hold["data/train-00000-of-00002.parquet"] = gate = threading.Event()
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(len(open_(DATA)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join()
    assert found == [12, 12]
    assert len(hub.fetched) == 2


def test_a_file_name_that_leads_elsewhere_is_refused(open_, hub, tmp_path):
    hub.repos["ada/faces"] = Repo("dataset", {"../../../../train.parquet": parquet(range(3))})
    with pytest.raises(DataError, match=r"lists file names or hashes that are impossible: \.\./\.\./"):
        open_(DATA)
    assert not hub.fetched


def test_no_room_is_a_sentence_with_the_size(open_, faces, monkeypatch):
    def full(*args) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(downloads, "_append", full)
    with pytest.raises(DataError, match=r"No space left on device\)\. It needs [\d,]+ bytes there"):
        open_(DATA)
