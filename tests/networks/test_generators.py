"""A trained generator as a file: what is written is read back, and what isn't ours is refused in a sentence."""

import io

import pytest
import safetensors.torch
import torch
from PIL import Image

from gan_core.errors import DataError
from gan_core.networks import generators
from gan_core.networks.drawing import draw, fixed_noise
from gan_core.networks.update import initial_state
from gan_core.quality import pictures


@pytest.fixture
def generator(tiny):
    return generators.finished(tiny, initial_state(tiny).average, 12, 345)


def test_a_generator_survives_the_file(tmp_path, generator, tiny):
    path = tmp_path / "a folder" / "generator.safetensors"
    generators.save(path, generator)
    again = generators.load(path)
    assert (again.plan, again.iteration, again.images) == (tiny, 12, 345)
    noise = fixed_noise(tiny, 4)
    assert torch.equal(draw(tiny, again.average, noise, again.statistics), draw(tiny, generator.average, noise))
    assert [p.name for p in path.parent.iterdir()] == ["generator.safetensors"]  # nothing half-written beside it


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "There is no file"),
        (b"", "can't be read as a generator"),
        (b"not a model at all", "can't be read as a generator"),
        (safetensors.torch.save({"x": torch.zeros(1)}), "not a generator of classgan"),
        (safetensors.torch.save({"x": torch.zeros(1)}, {"format": generators.FORMAT}), "can't be read as a generator"),
    ],
    ids=["missing", "empty", "text", "another model", "no plan"],
)
def test_what_is_not_a_generator_is_refused_in_a_sentence(tmp_path, content, sentence):
    path = tmp_path / "x.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        generators.load(path)


@pytest.mark.slow
def test_a_timeline_has_a_frame_for_each_grid_and_stays_small(tiny):
    average = initial_state(tiny).average
    grids = [(n, pictures.sample_grid(tiny, average)) for n in range(3)]
    movie = Image.open(io.BytesIO(pictures.timeline(grids)))
    assert (movie.format, movie.n_frames) == ("GIF", 3)
    many = Image.open(io.BytesIO(pictures.timeline([(n, grids[0][1] if n % 2 else grids[1][1]) for n in range(500)])))
    assert many.n_frames <= pictures.FRAMES + 1


def test_a_file_that_claims_more_than_it_holds_is_refused_before_anything_is_allocated(tmp_path, generator):
    """A stranger's file of a few bytes must not ask for gigabytes."""
    path = tmp_path / "x.safetensors"
    generators.save(path, generator)
    tensors, wide = safetensors.torch.load_file(path), generator.plan.changed(generator_width=512)
    facts = {"format": generators.FORMAT, "plan": wide.model_dump_json(), "iteration": "1", "images": "1"}
    path.write_bytes(safetensors.torch.save(tensors, facts))
    with pytest.raises(
        DataError, match=r"generator/0.weight is F32 \(4, 16, 4, 4\), its plan says F32 \(4, 2048, 4, 4\)"
    ):
        generators.load(path)


def test_numbers_that_are_not_finite_are_refused(tmp_path, generator):
    generator.average[7] = float("nan")
    generators.save(tmp_path / "x.safetensors", generator)
    with pytest.raises(DataError, match="not finite"):
        generators.load(tmp_path / "x.safetensors")


def test_a_file_does_not_tell_where_the_images_lay(tmp_path, generator, tiny):
    private = generators.finished(tiny.changed(data="folder:/home/anna/faces"), generator.average, 1, 1)
    generators.save(tmp_path / "x.safetensors", private)
    assert b"anna" not in (tmp_path / "x.safetensors").read_bytes()
    assert generators.load(tmp_path / "x.safetensors").plan.data == "folder:faces"
