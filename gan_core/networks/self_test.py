"""Before a device computes for a class: does it compute the right numbers, and is its memory large enough?

Its name says neither. Apple's GPU has computed wrong gradients in some versions of PyTorch, old NVIDIA cards have no kernels in
newer builds, and nobody knows beforehand what a model needs.
"""

import logging

import numpy as np

from gan_core.data.images import ImageSet
from gan_core.devices.hardware import CPU, TOGETHER, choices, forget_memory, in_words, known_fault, room
from gan_core.errors import DeviceTooSmall
from gan_core.networks.gradients import Beat, contribute
from gan_core.networks.inputs import largest_batch
from gan_core.networks.models import Networks, initial_weights
from gan_core.networks.recomputation import check
from gan_core.plan import Plan
from gan_core.units import WorkUnit

log = logging.getLogger("classgan.self_test")

# What devices raise, an AssertionError where there is no CUDA at all. Whatever a beat raises is no fault of theirs.
DEVICE_FAULTS = (RuntimeError, AssertionError, ValueError, MemoryError, ImportError)
STEPS, BATCH = 4, 8  # of the comparison with the CPU, which shall take a second or two there
MOST = 64  # images of the set that is made up


def fitting(
    plan: Plan, wanted: str, unfit: dict[str, str], beat: Beat = lambda: None, step_mb: int = 0
) -> tuple[str, tuple[Networks, ...]]:
    """The first device that can compute for this plan, or several that compute together, with its networks.

    Args:
        wanted: as in `devices.choices`.
        unfit: device → why it isn't used; those that fail here are added.
        beat: called after each batch.
        step_mb: that one step takes, as the class has found; 0 if it hasn't looked.

    Raises:
        DeviceTooSmall: none of the devices is large enough for one step, not even the CPU with half of this machine's memory.
    """
    for device in choices(wanted):
        if device == CPU:
            break
        if device in unfit:
            continue
        fault, networks = known_fault(device) or too_small(step_mb, device), ()
        if not fault:
            fault, networks = _tried(plan, device, beat)
        forget_memory(device)
        if not fault:
            return device, networks
        unfit[device] = fault
        log.warning("%s is not used: %s.", device, fault)
    # The class leases nothing that is too large for the device that it knows of. The CPU may be smaller.
    if unfit and (fault := too_small(step_mb, CPU)):
        raise DeviceTooSmall(f"{fault}, and no other device of this machine can be used")
    return CPU, (Networks(plan, CPU),)


def too_small(step_mb: int, device: str) -> str:
    """Why one step doesn't fit into a device's memory, in words; "" if it may."""
    there = room(device)
    return (
        f"a step takes {step_mb:,} MB, and {device} has {int(there) >> 20:,} MB for it" if step_mb << 20 > there else ""
    )


def _tried(plan: Plan, device: str, beat: Beat) -> tuple[str, tuple[Networks, ...]]:
    """Why this device can't be used, or its networks. After a fault nothing refers to them any more."""
    try:
        networks = tuple(Networks(plan, name) for name in device.split(TOGETHER))
        fault = next(filter(None, (fault_of(plan, one, beat) for one in networks)), "")
    except DEVICE_FAULTS as exc:
        return in_words(exc), ()
    return fault, () if fault else networks


def tested(plan: Plan) -> tuple[object, ...]:
    """What of a plan that may change in the middle of a training a device has to be tested for anew."""
    return plan.batch_size, plan.precision


def fault_of(plan: Plan, networks: Networks, beat: Beat = lambda: None) -> str:
    """What is wrong with the device of these networks for this plan, in words; "" if it may compute for a class.

    Raises:
        RuntimeError: by the device, which doesn't compute at all or has too little memory for one batch.
    """
    small = plan.model_copy(update={"batch_size": min(BATCH, plan.batch_size)})
    images, weights, reference = _images(plan), initial_weights(plan), Networks(plan)
    few = _unit(STEPS * small.batch_size)
    contribute(plan, networks, images, (_unit(largest_batch(plan)),), weights, beat)  # for its memory
    claimed, _ = contribute(small, networks, images, (few,), weights, beat)
    networks.recorded = None  # of both: their memory is the next lease's
    # Judged as credit is: what passes here passes there.
    finding = check(small, reference, images, (few,), weights, claimed, beat)
    return "" if finding.valid else f"it computes other numbers than the CPU: {finding.reason}"


def speed(plan: Plan, networks: Networks) -> float:
    """Images a second of this plan's model, over a few batches."""
    weights, images = initial_weights(plan), _images(plan)
    contribute(plan, networks, images, (_unit(plan.batch_size),), weights)  # the first touches everything
    _, measures = contribute(plan, networks, images, (_unit(STEPS * plan.batch_size),), weights)
    return measures.images / measures.seconds


def _images(plan: Plan) -> ImageSet:
    shape = (MOST, plan.image_size, plan.image_size, plan.channels)
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    return ImageSet(name="noise", pixels=pixels, labels=None, fingerprint="", skipped=())


def _unit(images: int) -> WorkUnit:
    return WorkUnit(ordinal=0, epoch=0, indices=tuple(i % MOST for i in range(images)), seed=0)
