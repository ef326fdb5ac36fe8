"""What `classgan doctor` finds out about this machine's device: `python -m deployments.student.device_check STEP_MB`, a plan as JSON in stdin.

In a process of its own: one that has touched a GPU keeps hundreds of megabytes of it, and a driver may end or hang it. `classgan
join` examines a machine and then stays beside its worker all day.
"""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass

from gan_core.errors import GanError

PATIENCE = 300.0  # seconds; a slow CPU computes some steps of a large model for comparison


class CheckFailed(Exception):
    """The device couldn't even be tried."""


@dataclass(frozen=True, slots=True)
class DeviceFound:
    device: str  # that this machine would compute on
    unfit: dict[str, str]  # device → why it isn't used
    speed: float  # images a second of the demo's model
    has_cuda: bool  # whether this PyTorch knows NVIDIA's GPUs at all
    too_small: str  # why the plan doesn't fit into its memory; "" if it may


def find_device(plan: str, step_mb: int) -> DeviceFound:
    """Try this machine's devices with a plan's model, given as JSON.

    Args:
        step_mb: that one step of it takes; 0 if nobody knows.

    Raises:
        CheckFailed: with what is known of the reason.
    """
    command = [sys.executable, "-m", "deployments.student.device_check", str(step_mb)]
    try:
        done = subprocess.run(
            command, input=plan, capture_output=True, encoding="utf-8", errors="replace", timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise CheckFailed(f"it gave no answer within {PATIENCE:.0f} s, so its driver hangs") from exc
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise CheckFailed(f"trying it ended with status {done.returncode}{': ' + said[-1] if said else ''}")
    return DeviceFound(**json.loads(done.stdout.splitlines()[-1]))


def main(step_mb: int) -> int:
    import torch

    from gan_core.networks.models import Networks
    from gan_core.networks.optimiser import warm_up
    from gan_core.networks.self_test import fitting, speed, too_small
    from gan_core.plan import checked_plan
    from gan_core.presets import preset
    from gan_core.settings import settings

    demo, unfit = preset("demo"), dict[str, str]()
    warm_up(demo)
    try:
        device, _ = fitting(checked_plan(json.load(sys.stdin)), settings().device, unfit, step_mb=step_mb)
        found = speed(demo, Networks(demo, device.split("+")[0]))
    except GanError as exc:
        print(exc, file=sys.stderr)
        return 1
    has_cuda = torch.version.cuda is not None
    print(json.dumps(asdict(DeviceFound(device, unfit, found, has_cuda, too_small(step_mb, device)))))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
