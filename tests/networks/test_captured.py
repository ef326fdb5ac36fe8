"""The recorded step of a GPU: the same code as on a CPU, so that its numbers are covered here; CUDA's recorder is a fake that runs the step again."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.utils.parametrize import ParametrizationList

from gan_core.data.images import ImageSet
from gan_core.devices import captured
from gan_core.devices.captured import AHEAD, WARM_UP
from gan_core.layout import PARTS, Vectors
from gan_core.networks import gradients, inputs
from gan_core.networks.gradients import contribute, frozen
from gan_core.networks.losses import LOSSES
from gan_core.networks.models import Networks, initial_weights
from gan_core.plan import Plan
from gan_core.presets import PRESETS
from gan_core.units import WorkUnit


@pytest.fixture
def plan_of():
    """A preset with small batches and units."""

    def make(name: str, kind: str):
        return PRESETS[name].model_copy(
            update={"contribution": kind, "batch_size": 8, "images_per_unit": 20, "precision": "float32"}
        )

    return make


def images_for(plan) -> ImageSet:
    shape = (64, plan.image_size, plan.image_size, plan.channels)
    pixels = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    return ImageSet(name="noise", pixels=pixels, labels=None, fingerprint="", skipped=())


def units_of(*sizes: int) -> list[WorkUnit]:
    return [
        WorkUnit(ordinal=n, epoch=0, indices=tuple((7 * n + 3 * i) % 64 for i in range(size)), seed=5 + n)
        for n, size in enumerate(sizes)
    ]


def held(d):
    """The same discriminator, which looks at its weights without another iteration of spectral norm's estimate."""
    for module in d.modules():
        if isinstance(module, ParametrizationList):
            module.eval()
    return d


def written_out(plan, images, units, weights) -> Vectors:
    """The loop as anybody would write it for one machine: a batch, D's step, G's step."""
    networks, loss = Networks(plan), LOSSES[plan.loss]
    networks.load(weights)
    g, d = networks.generator.train(), networks.discriminator.train()
    betas = plan.beta1, plan.beta2
    g_adam = torch.optim.Adam(g.parameters(), plan.learning_rate_g, betas, fused=True)
    d_adam = torch.optim.Adam(d.parameters(), plan.learning_rate_d, betas, fused=True)
    sums, total = {g: [], d: []}, 0
    for unit in units:
        random = torch.Generator().manual_seed(unit.seed)
        if plan.contribution == "gradient":
            networks.settle()
        for indices in np.array_split(np.array(unit.indices), plan.batches_of(unit.images)):
            real = images.batch(indices)
            if plan.mirror:
                flipped = torch.rand(len(real), 1, 1, 1, generator=random) < 0.5
                real = torch.where(flipped, real.flip(-1), real)
            real = real.contiguous(memory_format=torch.channels_last)
            d.train()
            fake = g(torch.randn(len(real), plan.latent_dim, 1, 1, generator=random))
            for network, adam, value in (
                (d, d_adam, lambda real=real, fake=fake: loss.discriminator(d(real), held(d)(fake.detach()))),
                (g, g_adam, lambda fake=fake: loss.generator(held(d)(fake))),
            ):
                with frozen(d) if network is g else nullcontext():
                    found = torch.autograd.grad(value(), list(network.parameters()))
                if plan.contribution == "gradient":
                    before = sums[network] or [torch.zeros_like(p) for p in network.parameters()]
                    sums[network] = [a.add(b, alpha=len(real)) for a, b in zip(before, found, strict=True)]
                    continue
                for parameter, gradient in zip(network.parameters(), found, strict=True):
                    parameter.grad = torch.empty_like(parameter).copy_(gradient)
                adam.step()
            total += len(real)
    if plan.contribution == "gradient":
        return Vectors(*(torch.cat([t.reshape(-1) for t in sums[net]]) / total for net in (g, d)))
    after = networks.read()
    return Vectors(*(after.part(part) - weights.part(part) for part in PARTS))


def same(a: Vectors, b: Vectors) -> bool:
    return all(torch.equal(a.part(part), b.part(part)) for part in PARTS)


@pytest.mark.parametrize("kind", ["local_steps", "gradient"])
@pytest.mark.parametrize("name", PRESETS)
def test_the_step_gives_bit_for_bit_what_the_loop_written_out_gives(plan_of, name, kind):
    plan = plan_of(name, kind)
    images, units, weights = images_for(plan), units_of(20, 17), initial_weights(plan)
    vectors, _ = contribute(plan, Networks(plan), images, units, weights)
    assert same(vectors, written_out(plan, images, units, weights))


@pytest.fixture
def recorder(monkeypatch):
    """CUDA's recorder: it keeps the step with the memory that it was recorded with, and runs it again on that."""
    here, aside = SimpleNamespace(wait_stream=lambda other: None), SimpleNamespace(wait_stream=lambda other: None)
    seen = SimpleNamespace(recorded=0, replayed=0, waited=0, pools=[], fault=None, here=here, current=here)

    class Graph:
        def replay(self) -> None:
            seen.replayed += 1
            self.run()

    class Event:
        def record(self, stream: object) -> None: ...

        def synchronize(self) -> None:
            seen.waited += 1

    class Recording:
        def __init__(self, graph: Graph, pool: object, stream: object, capture_error_mode: str) -> None:
            seen.pools.append(pool)
            assert capture_error_mode == "thread_local"
            assert stream is aside, "PyTorch's own stream belongs to the GPU that was recorded on first"
            self.graph = graph

        def __enter__(self) -> None:
            assert captured._recording.locked(), "PyTorch records one graph at a time"
            if seen.fault:
                seen.current = aside
                raise seen.fault
            seen.recorded += 1
            seen.graph = self.graph

        def __exit__(self, *_: object) -> None:
            seen.graph = None

    real = gradients.Pass._step

    def step(self, *held: torch.Tensor) -> None:
        if graph := getattr(seen, "graph", None):
            graph.run = lambda: real(self, *held)
        real(
            self, *held
        )  # a recording computes nothing: this one does, and whoever forgets to start afresh is found out

    monkeypatch.setattr(gradients.Pass, "_step", step)
    for module in (captured, gradients):
        monkeypatch.setattr(module, "is_recorded", lambda device: True)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: aside)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: seen.current)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: setattr(seen, "current", stream))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", Recording)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return seen


@pytest.mark.parametrize("kind", ["local_steps", "gradient"])
@pytest.mark.parametrize("name", ["demo", "better"])
def test_recorded_steps_give_the_same_lease_after_lease(plan_of, recorder, name, kind):
    """Whatever recording and earlier leases have done to weights, optimisers and sums is undone; a step is recorded once for
    each size of batch.
    """
    plan = plan_of(name, kind)
    images, networks, seen = images_for(plan), Networks(plan), []
    for units in (units_of(20, 17), units_of(17), units_of(20, 20)):
        weights = initial_weights(plan.model_copy(update={"seed": units[0].images}))
        vectors, measures = contribute(plan, networks, images, units, weights)
        assert same(vectors, written_out(plan, images, units, weights))
        assert measures.images == sum(unit.images for unit in units)
        seen.append((units, weights, measures))
    assert recorder.recorded == 3  # twice 10 of twenty; 9 and 8 of seventeen
    assert len(set(recorder.pools)) == 1  # each would keep a step's memory of its own
    assert recorder.replayed == 10
    for units, weights, measures in seen:  # losses are of their lease alone
        _, alone = contribute(plan, Networks(plan), images, units, weights)
        assert (measures.g_loss, measures.d_loss) == (alone.g_loss, alone.d_loss)


def test_another_plan_is_recorded_anew(plan_of, recorder):
    """Rates are written into what was recorded."""
    plan = plan_of("demo", "local_steps")
    images, networks, weights = images_for(plan), Networks(plan), initial_weights(plan)
    contribute(plan, networks, images, units_of(16), weights)
    faster = plan.model_copy(update={"learning_rate_g": 0.01})
    vectors, _ = contribute(faster, networks, images, units_of(16), weights)
    assert recorder.recorded == 2
    assert same(vectors, written_out(faster, images, units_of(16), weights))


def test_steps_are_not_started_far_ahead_of_what_is_done(plan_of, recorder):
    """A GPU that hangs would look busy."""
    plan = plan_of("demo", "local_steps")
    contribute(plan, Networks(plan), images_for(plan), units_of(8 * 12), initial_weights(plan))
    assert recorder.replayed == 12
    assert recorder.waited == 12 - AHEAD
    assert WARM_UP >= 3  # as PyTorch's own pages ask for, so that optimisers have their memory


def test_a_step_that_cant_be_recorded_is_computed_all_the_same(plan_of, recorder):
    """On the same GPU: nothing is wrong with it."""
    recorder.fault = RuntimeError("CUDA error: operation not permitted when stream is capturing")
    plan = plan_of("demo", "local_steps")
    images, units, weights = images_for(plan), units_of(8 * 12), initial_weights(plan)
    vectors, _ = contribute(plan, Networks(plan), images, units, weights)
    assert same(vectors, written_out(plan, images, units, weights))
    assert (recorder.recorded, recorder.replayed, recorder.waited) == (0, 0, 12 - AHEAD)
    assert recorder.current is recorder.here


def test_memory_that_is_too_small_for_recording_is_the_devices_fault(plan_of, recorder):
    recorder.fault = torch.OutOfMemoryError("CUDA out of memory.")
    plan = plan_of("demo", "local_steps")
    with pytest.raises(torch.OutOfMemoryError):
        contribute(plan, Networks(plan), images_for(plan), units_of(16), initial_weights(plan))


def test_apples_gpu_is_waited_for_in_the_same_way(monkeypatch):
    waited = []

    class Event:
        def record(self) -> None: ...

        def synchronize(self) -> None:
            waited.append(1)

    monkeypatch.setattr(torch.mps, "Event", Event)
    step = captured.Captured(lambda *tensors: None, torch.device("mps"))
    for _ in range(12):
        step([torch.zeros(1)])
    assert len(waited) == 12 - AHEAD


@pytest.mark.parametrize(("kind", "is_apart"), [("cuda", True), ("mps", False), ("cpu", False)])
def test_only_nvidias_gpus_get_their_units_from_another_thread(monkeypatch, kind, is_apart):
    """A CPU would be taken from what computes, and MPS may crash where two threads use it (pytorch issue 197805)."""
    threads = []
    monkeypatch.setattr(inputs, "batches", lambda *given: threads.append(threading.current_thread()))
    list(inputs.unit_by_unit(Plan(), images_for(Plan()), units_of(8, 8), torch.device(kind)))
    assert [thread is not threading.main_thread() for thread in threads] == [is_apart] * 2
