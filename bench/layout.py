"""channels_last against PyTorch's default layout, for one step of D and one of G at 64x64."""

from dataclasses import dataclass

import torch

from bench.measure import interleaved, median, ratio, seconds_of
from bench.options import Options
from bench.report import Row, Section, at_least
from gan_core.networks.gradients import discriminator_gradient, generator_gradient
from gan_core.networks.losses import LOSSES
from gan_core.networks.models import Networks
from gan_core.plan import Plan
from gan_core.presets import preset

BASELINE, OURS = "default layout", "channels_last"
NOT_SLOWER = 1.0  # the target: how much there is to save depends on the machine's memory, from one run to the next
FORMATS = {BASELINE: torch.contiguous_format, OURS: torch.channels_last}


@dataclass(frozen=True, slots=True)
class Bench:
    """The same networks and images in one layout."""

    plan: Plan
    networks: Networks
    real: torch.Tensor
    noise: torch.Tensor

    def step(self) -> None:
        """Forward and backward for both networks, without an optimiser: it doesn't see the layout."""
        loss = LOSSES[self.plan.loss]
        fake = self.networks.generator(self.noise)
        discriminator_gradient(self.networks, loss, self.real, fake)
        generator_gradient(self.networks, loss, fake)


def prepare(plan: Plan, layout: str) -> Bench:
    networks = Networks(plan)
    for network in (networks.generator, networks.discriminator):
        network.to(memory_format=FORMATS[layout])
    random = torch.Generator().manual_seed(0)
    shape = (plan.batch_size, plan.channels, plan.image_size, plan.image_size)
    real = torch.rand(shape, generator=random).mul_(2).sub_(1).contiguous(memory_format=FORMATS[layout])
    return Bench(plan, networks, real, torch.randn(plan.batch_size, plan.latent_dim, 1, 1, generator=random))


def run(options: Options) -> Section:
    plan = preset("dcgan")
    if options.quick:
        plan = plan.changed(batch_size=8)
    benches = {name: prepare(plan, name) for name in FORMATS}
    for bench in benches.values():
        bench.step()  # the first one compiles kernels
    taken = interleaved(
        {name: lambda b=bench: seconds_of(b.step) for name, bench in benches.items()}, 2 if options.quick else 9
    )
    return Section(
        name="layout",
        title=f"D's and G's forward and backward passes, DCGAN 64x64, batch of {plan.batch_size}",
        columns=("ms a step", "images/s"),
        ratio="speed",
        rows=(_row(plan, BASELINE, taken), _row(plan, OURS, taken)),
        notes=(
            "oneDNN brings tensors into an order of its own and computes the convolutions there, whatever layout they come in. "
            "channels_last only saves about half of that bringing: the target is that it isn't slower.",
        ),
    )


def _row(plan: Plan, name: str, taken: dict[str, list[float]]) -> Row:
    seconds = median(taken[name])
    speed = ratio(taken[BASELINE], taken[name])
    return Row(
        label=name,
        cells=(f"{seconds * 1000:,.0f}", f"{plan.batch_size / seconds:,.1f}"),
        figures={"seconds": seconds},
        ratio=speed,
        judgement=at_least(speed, NOT_SLOWER) if name == OURS else None,
    )
