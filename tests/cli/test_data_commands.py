"""`classgan data`: what an instructor sees of a data set before the class begins."""

import pytest
from picture_files import numbered, save, see_through
from PIL import Image
from typer.testing import CliRunner

from deployments.cli import app
from gan_core.errors import DataError, GanError
from gan_core.settings import settings
from gan_core.store.coordinator import trainings


@pytest.fixture
def classgan(tmp_path, monkeypatch):
    """Runs `classgan data` on this test's own folder, in this process; returns what it printed, or raises our error."""
    for name, value in {"HOME": tmp_path / "home", "DATA": tmp_path}.items():
        monkeypatch.setenv(f"CLASSGAN_{name}", str(value))
    settings.cache_clear()

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["data", *arguments], catch_exceptions=True)
        if isinstance(done.exception, GanError):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    yield run
    settings.cache_clear()


@pytest.fixture
def photos(tmp_path):
    numbered(tmp_path / "photos" / "cats", 3)
    numbered(tmp_path / "photos" / "dogs", 4)
    (tmp_path / "photos" / "cats" / "torn.jpg").write_bytes(b"\xff\xd8 torn")
    return "folder:photos"


def test_info_shows_count_size_labels_and_a_picture(classgan, photos, tmp_path):
    said = classgan("info", photos, "--image-size", "32", "--out", str(tmp_path / "grid.png"))
    assert "7 of 32x32, colour" in said
    assert "2 (0: 3, 1: 4)" in said
    assert "1 left out" in said
    assert Image.open(tmp_path / "grid.png").size == (7 * 34 + 2, 36)


def test_prepare_leaves_nothing_to_do_and_check_names_the_broken(classgan, photos, tmp_path):
    assert "7 images of folder:photos are ready at 64x64." in classgan("prepare", photos)
    assert len(list((tmp_path / "home" / "cache").glob("folder-64x3-*/images.json"))) == 1
    said = classgan("check", photos)
    assert "1 broken file left out:" in said
    assert "cats/torn.jpg" in said


def test_check_compares_with_a_training(classgan, photos, connection, database, tmp_path, tiny, monkeypatch):
    monkeypatch.setenv("CLASSGAN_DATABASE_URL", database)
    settings.cache_clear()
    plan = tiny.changed(data=photos, channels=3)
    row = trainings.create(connection, "lesson", plan.model_dump(mode="json"))
    with pytest.raises(DataError, match="has not opened its images yet"):
        classgan("check", photos, "--training", "lesson")
    mark = classgan("check", photos, "--image-size", "32").split("fingerprint ")[1][:16]
    trainings.start(connection, row.id, mark, 7, 100, b"weights", photos)
    assert "They are those of training 'lesson'." in classgan("check", photos, "--training", "lesson")
    (tmp_path / "photos" / "dogs" / "000.png").unlink()
    with pytest.raises(DataError, match=r"is other data here .* 6 images, 1 left out as broken"):
        classgan("check", photos, "--training", "lesson")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["prepare", "faces"], "Unknown data 'faces'. Write digits, folder:PATH"),
        (["info", "digits", "--out", "grid.jpg"], "grid.jpg: the picture is written as .png"),
        (["prepare", "digits", "--image-size", "65"], "image_size"),
    ],
)
def test_a_mistake_is_a_sentence(classgan, arguments, sentence):
    with pytest.raises(GanError, match=sentence):
        classgan(*arguments)


def test_the_background_under_transparent_pictures(classgan, connection, database, tmp_path, monkeypatch):
    monkeypatch.setenv("CLASSGAN_DATABASE_URL", database)
    settings.cache_clear()
    save(see_through("RGBA"), tmp_path / "sprites" / "1.png")
    said = classgan("info", "folder:sprites", "--background", "#102030")
    assert "1, on the background #102030" in said
    registered = classgan("register", "sprites", "folder:sprites", "--background", "#102030")
    assert "--set data_version=sprites@1 --set background=#102030" in registered
    with pytest.raises(GanError, match=r"background: .*#\[0-9a-f\]\{6\}.* \(got 'pink'\)"):
        classgan("info", "folder:sprites", "--background", "pink")
