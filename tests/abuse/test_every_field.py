"""Every field of a contribution meets a gate and a check, or is bounded: a new field that meets none fails here."""

import dataclasses
import inspect
import math
from uuid import uuid4

import pytest

from gan_core.coordinator.gates import Sketcher, findings
from gan_core.layout import PARTS, Layout, Vectors
from gan_core.networks.gradients import contribute
from gan_core.networks.models import Networks, initial_weights, layout_of
from gan_core.networks.recomputation import check
from gan_core.policies.sampling import cut_units
from gan_core.store import student
from gan_core.store.coordinator import trainings, unit_queue
from gan_core.store.migrate import add_student
from gan_core.units import Measures, Verdict

SPOILT = 1_000.0


@pytest.fixture(scope="module")
def round_(tiny, digits):
    """(plan, units, weights, contributions) of four students, one unit each."""
    plan = tiny.changed(generator_width=8, discriminator_width=8, images_per_unit=80, quorum=320)
    units, _ = cut_units(plan, 0, len(digits))
    weights, networks = initial_weights(plan), Networks(plan)
    return plan, units, weights, [contribute(plan, networks, digits, [unit], weights)[0] for unit in units]


def test_a_contribution_is_its_tensors_its_measures_and_its_trail():
    """What is walked below is all there is. The trail is only compared with another machine's: tests/policies/test_trails.py."""
    assert list(inspect.signature(student.submit).parameters)[1:] == [
        "lease_id",
        "boot",
        "measures",
        "payload",
        "trail",
    ]
    assert [field.name for field in dataclasses.fields(Vectors)] == list(PARTS)
    assert [field.name for field in dataclasses.fields(Layout)] == list(PARTS)


@pytest.mark.slow
def test_every_tensor_of_a_contribution_meets_a_gate_and_a_check(round_, digits):
    plan, units, weights, honest = round_
    layout = layout_of(plan)
    for part in PARTS:
        for spec in layout.part(part):
            spoilt = honest[0].clone()
            spoilt.part(part)[spec.start : spec.stop] *= SPOILT
            sketcher = Sketcher(layout)
            sent = [spoilt, *honest[1:]]
            sketches = [sketcher.sketch(n, f"student{n}", 80, vectors) for n, vectors in enumerate(sent)]
            found = findings(plan, sketches)
            assert list(found) == [0], spec.name
            assert found[0].certain, spec.name
            assert f"its {part} part" in found[0].reason
            assert not check(plan, Networks(plan), digits, units[:1], weights, spoilt).valid, spec.name


LIES = (-math.inf, -1e30, -1.0, 1e30, math.inf, math.nan)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Measures)])
@pytest.mark.parametrize("lie", LIES)
def test_every_figure_of_a_contribution_is_bounded_or_the_databases_own(connection, tiny, field, lie):
    """Images are the lease's. Seconds can't be more than have passed, shares lie between 0 and 1, losses within a million."""
    plan = tiny.changed(lease_seconds=60)
    row = trainings.create(connection, "test", plan.model_dump(mode="json"))
    trainings.start(connection, row.id, "data", 5_000, 100, b"weights")
    units, position = cut_units(plan, 0, 5_000)
    unit_queue.create_units(connection, row.id, 0, plan.quorum, position, units)
    add_student(connection, "instructor")
    worker = student.register(connection, "desk", boot := uuid4(), "cpu", {})
    lease = student.claim(connection, worker, boot)
    honest = Measures(images=16, seconds=0.0, g_loss=1.0, d_loss=2.0, d_real_accuracy=0.5, d_fake_accuracy=0.5)
    told = dataclasses.replace(honest, **{field: lie})
    assert student.submit(connection, lease.id, boot, told, bytes(100)).verdict is Verdict.ACCEPTED
    images, seconds, *losses, real, fake = connection.execute(
        "SELECT images, seconds, g_loss, d_loss, d_real_accuracy, d_fake_accuracy FROM classgan.contributions"
    ).fetchone()
    assert images == 16
    assert 0 <= seconds < 60
    assert all(abs(loss) <= 1e6 for loss in losses)
    assert 0 <= real <= 1
    assert 0 <= fake <= 1
