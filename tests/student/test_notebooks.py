"""The notebooks do what they show. The one that joins a class is in tests/acceptance/test_joining.py."""

import os

import nbformat
import pytest
from kernels import NOTEBOOKS, cells, opened, said
from systems import link

from gan_core.networks import generators
from gan_core.networks.update import initial_state


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_is_kept_without_its_results(path):
    """Nobody's invite, name or picture comes along."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(cell.execution_count is None and not cell.outputs for cell in code)


@pytest.mark.slow
def test_images_are_drawn_from_the_newest_generator(tmp_path, tiny, cache):
    generator = generators.finished(tiny, initial_state(tiny).average, 3, 144)
    generators.save(tmp_path / "outputs" / "mine" / "generator.safetensors", generator)
    (tmp_path / ".classgan").mkdir()
    link(tmp_path / ".classgan" / "cache", cache)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("CLASSGAN_")}
    with opened("demo_generate.ipynb", tmp_path, clean) as notebook:
        for place, cell in cells(notebook):
            notebook.execute_cell(cell, place)
        first, *drawing, last = (cell for _, cell in cells(notebook))
        assert "mine/generator.safetensors: dcgan, 32x32, 3 iterations, 144 images seen" in said(first)
        pictures = [sum("image/png" in o.get("data", {}) for o in cell.outputs) for cell in drawing]
        assert pictures == [1, 1, 1]
        assert said(last) == "one.png\n"
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
