"""Hosts of their own: network namespaces where this user may make them, else loopback addresses."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Network:
    """The instructor's address, and how a command is made to run on another host."""

    address: str
    spaces: dict[str, str]  # namespace of each host; none for loopback

    def on(self, host: str) -> list[str]:
        """What goes in front of a command that shall run there."""
        return ["ip", "netns", "exec", self.spaces[host]] if self.spaces else []


@contextmanager
def hosts(*names: str) -> Iterator[Network]:
    """One host for each name, all on one bridge with the instructor, who stays in this namespace."""
    # By process, not by chance: the tests run in two, and two bridges must not have the same addresses.
    mark, third = f"cg{os.getpid() % 100_000}", 1 + os.getpid() % 254
    spaces = {name: f"{mark}{n}" for n, name in enumerate(names)}
    try:
        made = shutil.which("ip") and _make(mark, f"10.77.{third}", spaces)
        yield Network(f"10.77.{third}.1", spaces) if made else Network("127.0.0.2", {})
    finally:
        for space in spaces.values():
            _ip("netns", "del", space)
        _ip("link", "del", mark)


def _make(bridge: str, network: str, spaces: dict[str, str]) -> bool:
    steps = [f"link add {bridge} type bridge", f"addr add {network}.1/24 dev {bridge}", f"link set {bridge} up"]
    for n, space in enumerate(spaces.values()):
        steps += [
            f"netns add {space}",
            f"link add {space}v type veth peer name eth0 netns {space}",
            f"link set {space}v master {bridge} up",
            f"-n {space} addr add {network}.{n + 2}/24 dev eth0",
            f"-n {space} link set eth0 up",
            f"-n {space} link set lo up",
        ]
    return all(_ip(*step.split()) for step in steps)


def _ip(*words: str) -> bool:
    return bool(shutil.which("ip")) and subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0
