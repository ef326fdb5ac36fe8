"""A class whose plan changes all the time, with late answers and killed workers: nobody honest is accused."""

import random

import pytest
from faults.changes import CHANGEABLE, Restless, accusations, changing_class, faults, figures
from faults.soak import verdict

pytestmark = [pytest.mark.slow, pytest.mark.rehearsal, pytest.mark.timeout(900)]

SEED = 11


def test_a_class_in_which_every_knob_changes_accuses_nobody_and_loses_nothing(tmp_path, class_home):
    """A minute of what `make soak CHANGES=1` does for as long as you like."""
    class_home(tmp_path / "home")
    with changing_class(tmp_path) as school:
        restless = Restless(school, random.Random(SEED), training_seconds=600)
        restless.run(60)
        happened = figures(school)
        told = f"seed {SEED}: {dict(restless.counts)}, {happened}, {accusations(school)}"
        assert not any({**faults(school), **verdict(school)}.values()), told
        assert restless.knobs.keys() == set(CHANGEABLE), told
        assert all(restless.knobs.values()), restless.knobs
        assert happened["checks, valid"] >= 10, told
        assert happened["late answers after a change of the plan"], told
        assert restless.counts["shifts killed"] + restless.counts["workers killed"], told
