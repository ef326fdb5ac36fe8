"""Names that others import: a notebook or a package written before a module moved reads where it went."""

import importlib

import pytest

from gan_core.old_names import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_says_what_the_module_is_called_now(old):
    importlib.import_module(MOVED[old])
    package, _, name = old.rpartition(".")
    for line in (f"import {old}", f"from {package} import {name}"):
        with pytest.raises(ImportError, match=f"^{old} is called {MOVED[old]} now"):
            exec(line)


def test_a_name_that_never_was_is_an_ordinary_error():
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'deployments\.nonsense'$"):
        importlib.import_module("deployments.nonsense")
