"""Which device a machine computes on: the best one that passes its self-test, and after a fault the next one."""

import logging

from gan_core.devices.hardware import CPU, choices, forget_memory, in_words, is_broken, is_out_of_memory
from gan_core.errors import DeviceBroken, DeviceTooSmall
from gan_core.networks.gradients import Beat
from gan_core.networks.models import Networks
from gan_core.networks.self_test import fitting
from gan_core.plan import Plan

log = logging.getLogger("classgan.devices")


class DeviceChoice:
    """For one shift.

    Args:
        wanted: as in `devices.choices`.
    """

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self.device = choices(wanted)[0]
        self._unfit: dict[str, str] = {}  # device → why it isn't used for the training at hand
        self._was_full: set[str] = set()  # devices whose memory has been too small once
        self._used: set[str] = set()  # devices that have computed in this process

    @property
    def why(self) -> str:
        """Why it isn't the first choice, as a part of a sentence; "" if it is."""
        return "; ".join(f"{name} is not used: {fault}" for name, fault in self._unfit.items())

    def fit(self, plan: Plan, beat: Beat, another: bool = False, step_mb: int = 0) -> tuple[Networks, ...]:
        """The networks of the best device for this plan, which `device` names from then on.

        Args:
            beat: called after each batch of the self-test.
            another: of a training that this shift hasn't computed for yet: what was no good before may do. The networks of the
                one before are gone by now, for a device may not hold two.
            step_mb: that one step of it takes; 0 if nobody knows.

        Raises:
            DeviceTooSmall: no device is large enough; the CPU is `device` from then on.
            DeviceBroken: a device that has computed in this process computes nothing any more.
        """
        if another:
            self._unfit, self._was_full = {}, set()
            forget_memory(self.device)
        too_small: DeviceTooSmall | None = None
        try:
            device, networks = fitting(plan, self._wanted, self._unfit, beat, step_mb)
        except DeviceTooSmall as exc:
            device, networks, too_small = CPU, (), exc
        for lost in self._used & self._unfit.keys():
            self._require_whole(lost, self._unfit[lost])
        self.device = device
        if too_small:
            raise too_small
        self._used.add(device)
        return networks

    @property
    def is_last(self) -> bool:
        """Whether there is no other device to go on with."""
        return self.device == CPU

    def move_on(self, fault: Exception) -> None:
        """Make the most of this fault: the same device is used again with its memory tidied up, once, or the next one.

        Call it when nothing refers to the networks any more, then `fit`.

        Raises:
            DeviceBroken: the device computes nothing any more in this process.
        """
        device, words = self.device, in_words(fault)
        forget_memory(device)
        if is_out_of_memory(fault) and device not in self._was_full:
            self._was_full.add(device)
            log.warning("%s has too little memory: tidied up, once more.", device)
            return
        self._require_whole(device, words)
        self._unfit[device] = words
        log.warning("%s is not used any more: %s.", device, words)

    def _require_whole(self, device: str, words: str) -> None:
        if device != CPU and is_broken(device):
            raise DeviceBroken(f"{device} has stopped working ({words}). The worker starts a fresh process.")
