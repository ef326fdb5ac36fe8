"""A shift in a class against a bare loop: the same model, images and number of batches, one thread of computing each."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from bench.measure import interleaved, median, ratio
from bench.options import Options
from bench.photos import make_photos
from bench.report import Row, Section, at_least
from bench.school import School, school
from gan_core.data.images import ImageSet, open_images
from gan_core.networks.losses import LOSSES
from gan_core.networks.models import Networks
from gan_core.plan import Plan
from gan_core.presets import preset
from gan_core.store.engine import connect

PHOTOS = 1_280
UNITS = 2  # an iteration: the second computes while the first uploads, and the last upload has to be waited for
UNIT = 320  # images
TARGET = 0.90
KINDS = ("gradient", "local_steps")


class BareLoop:
    """What anybody would write for one machine: no class, no units, no store."""

    def __init__(self, plan: Plan, images: ImageSet) -> None:
        self.plan, self.images, self.networks = plan, images, Networks(plan)
        g, d = self.networks.generator, self.networks.discriminator
        betas = (plan.beta1, plan.beta2)
        self.g_adam = torch.optim.Adam(g.parameters(), plan.learning_rate_g, betas, fused=True)
        self.d_adam = torch.optim.Adam(d.parameters(), plan.learning_rate_d, betas, fused=True)
        self.random = torch.Generator().manual_seed(0)

    def run(self, images: int) -> float:
        """Seconds for so many images: a step a batch for local steps, one step at the end for a gradient."""
        started, batch = time.perf_counter(), self.plan.batch_size
        order = torch.randperm(len(self.images), generator=self.random)[:images].split(batch)
        for number, indices in enumerate(order, start=1):
            self._backward(indices.tolist())
            if self.plan.contribution == "local_steps" or number == len(order):
                for adam in (self.d_adam, self.g_adam):
                    adam.step()
                    adam.zero_grad(set_to_none=False)
        return time.perf_counter() - started

    def _backward(self, indices: Sequence[int]) -> None:
        g, d, loss = self.networks.generator, self.networks.discriminator, LOSSES[self.plan.loss]
        real = self.images.batch(indices)
        flipped = torch.rand(len(real), 1, 1, 1, generator=self.random) < 0.5
        real = torch.where(flipped, real.flip(-1), real).contiguous(memory_format=torch.channels_last)
        fake = g(torch.randn(len(real), self.plan.latent_dim, 1, 1, generator=self.random))
        loss.discriminator(d(real), d(fake.detach())).backward()
        d.requires_grad_(False)
        loss.generator(d(fake)).backward()
        d.requires_grad_(True)


@dataclass(frozen=True, slots=True)
class Parts:
    """Where a shift's seconds went, over all iterations of a training: by the database's clock."""

    waiting: float  # from units open to the first claim
    computing: float
    carrying: float  # weights, encoding, claims, and the uploads that nothing was computed beside
    closing: float  # from the last submit to the iteration's end: the coordinator's

    def sentence(self, kind: str) -> str:
        total = self.waiting + self.computing + self.carrying + self.closing
        shares = ", ".join(f"{name} {getattr(self, name) / total:.1%}" for name in self.__slots__)
        return f"{kind}, where the shift's time goes: {shares}."


def run(options: Options) -> Section:
    rounds = 1 if options.quick else 2
    rows, notes = [], []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with school() as room:
            photos = make_photos(room.folder / "photos", PHOTOS, (64, 64))
            for kind in KINDS:
                kind_rows, note = compare(room, plan_for(kind, photos, options.quick), rounds)
                rows.extend(kind_rows)
                notes.append(note)
    finally:
        torch.set_num_threads(threads)
    return Section(
        name="shift",
        title=f"a class of one, iterations of {UNITS} units, against a bare loop over the same images",
        columns=("images/s", "s an iteration"),
        ratio="speed",
        rows=tuple(rows),
        notes=(
            *notes,
            "An iteration lasts from its units' creation until the next weights are published, so it holds every wait there is.",
        ),
    )


def plan_for(kind: str, photos: Path, quick: bool) -> Plan:
    plan = preset("dcgan").changed(data=f"folder:{photos}", contribution=kind, codec="int8")
    if quick:
        plan = plan.changed(generator_width=16, discriminator_width=16)
    return plan.changed(images_per_unit=UNIT, quorum=UNIT * UNITS)


def compare(room: School, plan: Plan, rounds: int) -> tuple[list[Row], str]:
    """Rows of the bare loop and of the shift, and where the shift's time went."""
    images = open_images(plan.data, image_size=plan.image_size, channels=plan.channels, cache=room.cache)
    bare, kind = BareLoop(plan, images), plan.contribution
    bare.run(plan.batch_size)  # the first batch compiles kernels
    with room.leader(kind, plan) as leader, room.workers(f"worker-{kind.replace('_', '-')}"):

        def iteration() -> float:
            opened = leader.ask("open")
            return leader.ask("close")["ended"] - opened["started"]

        taken = interleaved({"bare": lambda: bare.run(UNIT * UNITS), "shift": iteration}, rounds)
    rows = []
    for name in taken:
        seconds, speed = median(taken[name]), ratio(taken["bare"], taken[name])
        rows.append(
            Row(
                label=f"{kind}: {'bare loop' if name == 'bare' else 'shift'}",
                cells=(f"{UNIT * UNITS / seconds:,.1f}", f"{seconds:.2f}"),
                figures={"seconds": seconds, "images_per_second": UNIT * UNITS / seconds},
                ratio=speed,
                judgement=at_least(speed, TARGET) if name == "shift" else None,
            )
        )
    return rows, parts_of(room, kind).sentence(kind)


def parts_of(room: School, training: str) -> Parts:
    with connect(room.url) as connection:
        row = connection.execute(
            "SELECT sum(first - opened_at), sum(computing), sum(last - first) - sum(computing), sum(closed_at - last) FROM ("
            " SELECT extract(epoch FROM i.opened_at)::float AS opened_at, extract(epoch FROM i.closed_at)::float AS closed_at,"
            " extract(epoch FROM min(l.claimed_at))::float AS first, extract(epoch FROM max(c.submitted_at))::float AS last,"
            " sum(c.seconds) AS computing FROM classgan.trainings AS t JOIN classgan.iterations AS i ON i.training_id = t.id"
            " JOIN classgan.contributions AS c ON c.training_id = t.id AND c.iteration = i.number"
            " JOIN classgan.leases AS l ON l.id = c.lease_id WHERE t.name = %s AND i.closed_at IS NOT NULL"
            " GROUP BY i.number, i.opened_at, i.closed_at) AS per_iteration",
            (training,),
        ).fetchone()
    assert row is not None
    return Parts(*row)
