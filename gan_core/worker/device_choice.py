"""Which device a machine computes on: the best one that passes its self-test, and after a fault the next one."""

import logging

from gan_core.devices.hardware import CPU, choices, forget_memory, in_words, is_broken, is_out_of_memory
from gan_core.errors import DeviceBroken
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

    @property
    def why(self) -> str:
        """Why it isn't the first choice, as a part of a sentence; "" if it is."""
        return "; ".join(f"{name} is not used: {fault}" for name, fault in self._unfit.items())

    def fit(self, plan: Plan, beat: Beat, another: bool = False) -> tuple[Networks, ...]:
        """The networks of the best device for this plan, which `device` names from then on.

        Args:
            beat: called after each batch of the self-test.
            another: of a training that this shift hasn't computed for yet: what was no good before may do.
        """
        if another:
            self._unfit, self._was_full = {}, set()
        self.device, networks = fitting(plan, self._wanted, self._unfit, beat)
        return networks

    def goes_on_after(self, fault: Exception) -> bool:
        """Whether computing is worth another try after this fault: on the same device with its memory tidied up, once,
        or on the next one. Call `fit` then.

        Raises:
            DeviceBroken: the device computes nothing any more in this process.
        """
        device, words = self.device, in_words(fault)
        if device == CPU:
            return False
        forget_memory(device)
        if is_out_of_memory(fault) and device not in self._was_full:
            self._was_full.add(device)
            log.warning("%s has too little memory: tidied up, once more.", device)
            return True
        if is_broken(device):
            raise DeviceBroken(f"{device} has stopped working ({words}). The worker starts a fresh process.") from fault
        self._unfit[device] = words
        log.warning("%s is not used any more: %s.", device, words)
        return True
