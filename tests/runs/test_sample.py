"""Sample grids on their way to people: into the database, the outputs folder and Prefect."""

import pytest

from gan_core.settings import Settings
from tasks import sample


@pytest.mark.parametrize("has_room", [True, False])
def test_outputs_without_room_cost_a_file_and_not_the_picture(
    classroom, tiny, connection, monkeypatch, tmp_path, caplog, has_room
):
    with classroom.working(1):
        training = classroom.train(tiny)
    outputs = tmp_path / "outputs"
    if not has_room:
        outputs.write_text("a file where the folder should be", encoding="utf-8")
    monkeypatch.setattr(sample, "settings", lambda: Settings(database_url=classroom.url, outputs=outputs))
    shown = []
    monkeypatch.setattr(sample.artifacts, "is_status_due", lambda *_: False)
    monkeypatch.setattr(sample.artifacts, "show_samples", lambda *given: shown.append(given))
    sample.sample.fn(training.snapshot())
    ((png,),) = connection.execute("SELECT png FROM classgan.samples").fetchall()
    assert shown[0][-1] == png
    if has_room:
        (file,) = outputs.rglob("*.png")
        assert file.read_bytes() == png
    else:
        assert f"{outputs}/test/samples: Not a directory. Make room; the database has this picture." in caplog.text
