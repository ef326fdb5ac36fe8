"""Notebooks run as a reader runs them: cell by cell, in a kernel of their own."""

import os
import re
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


@contextmanager
def opened(name: str, folder: Path, env: dict[str, str], **values: str) -> Generator[NotebookClient]:
    """The notebook with its kernel, which works in `folder`; `NAME = …` has the value given, and nothing is installed."""
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    for cell in notebook.cells:
        cell.source = re.sub(r"^%pip.*\n", "", cell.source, flags=re.MULTILINE)
        for variable, value in values.items():
            cell.source = re.sub(rf"^{variable} = .*$", f"{variable} = {value!r}", cell.source, flags=re.MULTILINE)
    client = NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(folder)}})
    with client.setup_kernel(env=env):
        yield client


def cells(client: NotebookClient) -> list[tuple[int, nbformat.NotebookNode]]:
    """(place, cell) of the code cells."""
    return [(place, cell) for place, cell in enumerate(client.nb.cells) if cell.cell_type == "code"]


def interrupt(client: NotebookClient) -> None:
    """What the interrupt button does."""
    os.kill(client.km.provisioner.pid, signal.SIGINT)


def said(cell: nbformat.NotebookNode) -> str:
    """What the cell has printed so far."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")
