"""Generator and discriminator, filled from flat vectors and read into them."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrize import ParametrizationList

from gan_core.devices.hardware import memory_format
from gan_core.layout import PARTS, Layout, Part, TensorSpec, Vectors
from gan_core.plan import ModelName, Plan

POWER_ITERATIONS = 15  # from a start that everybody knows to the largest singular value; PyTorch takes as many


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large the two networks are."""

    image_size: int  # pixels, a power of two from 16
    channels: int
    latent_dim: int
    generator_width: int  # channels at half of the full resolution
    discriminator_width: int  # channels after the first layer

    @property
    def doublings(self) -> int:
        """Steps of a factor two between 4x4 and the full image."""
        return int(math.log2(self.image_size)) - 2


def generator(size: Size) -> nn.Sequential:
    """Noise (N, latent, 1, 1) → images (N, C, S, S) in [-1, 1]. Source: Radford et al. 2015 (arXiv:1511.06434), figure 1."""
    width = size.generator_width * 2 ** (size.doublings - 1)
    layers: list[nn.Module] = [
        nn.ConvTranspose2d(size.latent_dim, width, 4, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    ]  # (N, width, 4, 4)
    for _ in range(size.doublings - 1):
        layers += [
            nn.ConvTranspose2d(width, width // 2, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width // 2),
            nn.ReLU(inplace=True),
        ]  # twice as wide an image, half the channels
        width //= 2
    layers += [nn.ConvTranspose2d(width, size.channels, 4, stride=2, padding=1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers)


def batch_norm_discriminator(size: Size) -> nn.Sequential:
    """Images (N, C, S, S) → logits (N,). Source: Radford et al. 2015 (arXiv:1511.06434), section 3."""
    width = size.discriminator_width
    layers: list[nn.Module] = [
        nn.Conv2d(size.channels, width, 4, stride=2, padding=1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
    ]  # (N, width, S/2, S/2)
    for _ in range(size.doublings - 1):
        layers += [
            nn.Conv2d(width, width * 2, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width * 2),
            nn.LeakyReLU(0.2, inplace=True),
        ]
        width *= 2
    layers += [nn.Conv2d(width, 1, 4, bias=False), nn.Flatten(0)]  # (N, width, 4, 4) → (N,)
    return nn.Sequential(*layers)


def spectral_norm_discriminator(size: Size) -> nn.Sequential:
    """Images (N, C, S, S) → logits (N,), each layer's largest singular value held at 1. Source: Miyato et al. 2018 (arXiv:1802.05957)."""
    width = size.discriminator_width
    layers: list[nn.Module] = [
        _normed(nn.Conv2d(size.channels, width, 4, stride=2, padding=1)),
        nn.LeakyReLU(0.2, inplace=True),
    ]
    for _ in range(size.doublings - 1):
        layers += [_normed(nn.Conv2d(width, width * 2, 4, stride=2, padding=1)), nn.LeakyReLU(0.2, inplace=True)]
        width *= 2
    layers += [_normed(nn.Conv2d(width, 1, 4)), nn.Flatten(0)]
    return nn.Sequential(*layers)


def _normed(layer: nn.Conv2d) -> nn.Conv2d:
    """The layer with its largest singular value held at 1. That is computed in float32, in however few bits the layer itself is."""
    spectral_norm(layer)
    for norm in layer.modules():
        if isinstance(norm, ParametrizationList):
            norm.forward = _in_float32(norm)
    return layer


def _in_float32(norm: ParametrizationList) -> Callable[[], Tensor]:
    compute = norm.forward

    def computed() -> Tensor:
        with torch.autocast(norm.original.device.type, enabled=False):
            return compute()

    return computed


MODELS: Mapping[ModelName, tuple[Callable[[Size], nn.Sequential], Callable[[Size], nn.Sequential]]] = MappingProxyType(
    {
        "dcgan": (generator, batch_norm_discriminator),
        "spectral": (generator, spectral_norm_discriminator),
    }
)


def size_of(plan: Plan) -> Size:
    return Size(
        image_size=plan.image_size,
        channels=plan.channels,
        latent_dim=plan.latent_dim,
        generator_width=plan.generator_width,
        discriminator_width=plan.discriminator_width,
    )


class Networks:
    """G and D of a plan on one device, filled from and read into flat vectors."""

    def __init__(self, plan: Plan, device: torch.device | str = "cpu") -> None:
        make_generator, make_discriminator = MODELS[plan.model]
        self.device = torch.device(device)
        self.memory_format = memory_format(self.device)
        with self.device:
            self.generator = make_generator(size_of(plan)).to(memory_format=self.memory_format)
            self.discriminator = make_discriminator(size_of(plan)).to(memory_format=self.memory_format)
        self.latent_dim = plan.latent_dim
        self.recorded: object = None  # the last pass over them (`gradients.Pass`), where a GPU has recorded its steps
        self.layout = layout_of(plan)
        self._norms = [module for module in self.discriminator.modules() if isinstance(module, ParametrizationList)]

    def tensors(self, part: Part) -> Iterator[Tensor]:
        """The live tensors of this part, in the layout's order."""
        yield from getattr(self, part).parameters()

    @torch.no_grad()
    def load(self, weights: Vectors) -> None:
        """Fill both networks."""
        for part in PARTS:
            vector = weights.part(part).to(self.device)  # in one piece
            for spec, tensor in zip(self.layout.part(part), self.tensors(part), strict=True):
                tensor.copy_(vector[spec.start : spec.stop].view(spec.shape))
        self.settle()

    @torch.no_grad()
    def settle(self) -> None:
        """Make what the networks remember beside their weights follow from the weights alone, so that it never travels.

        Spectral norm's estimate starts where everybody's does. Batch norm's running numbers are used by nobody who
        trains: whoever draws computes them (`drawing.standing_statistics`).
        """
        random = torch.Generator().manual_seed(0)
        for norm in self._norms:
            mode = norm.training
            norm.train()
            for direction in norm.buffers():
                direction.copy_(F.normalize(torch.randn(direction.shape, generator=random), dim=0))
            for _ in range(POWER_ITERATIONS):
                norm()  # in training mode, each look at the weights is an iteration (Miyato et al. 2018, algorithm 1)
            norm.train(mode)

    @contextmanager
    def estimates_kept(self) -> Generator[None]:
        """While this holds, a look at the discriminator's weights is no iteration of spectral norm's estimate."""
        iterating = [norm for norm in self._norms if norm.training]
        for norm in iterating:
            norm.eval()
        try:
            yield
        finally:
            for norm in iterating:
                norm.train()

    @torch.no_grad()
    def read(self) -> Vectors:
        """A copy of both, on the CPU."""
        return Vectors(*(flatten(self.tensors(part)) for part in PARTS))


def flatten(tensors: Iterable[Tensor]) -> Tensor:
    """One flat float32 CPU vector of all elements, each tensor in its logical (contiguous) order."""
    pieces = [t.detach().contiguous().view(-1).to(torch.float32) for t in tensors]
    return torch.cat(pieces).to("cpu") if pieces else torch.zeros(0)


def layout_of(plan: Plan) -> Layout:
    """Names and shapes of the plan's model. Costs no memory: the networks are built without storage, once."""
    return _layout(plan.model, size_of(plan))


@cache
def _layout(model: ModelName, size: Size) -> Layout:
    with torch.device("meta"):
        networks = zip(PARTS, (make(size) for make in MODELS[model]), strict=True)
        return Layout(*(_specs(f"{part}/", network.named_parameters()) for part, network in networks))


def statistics_of(plan: Plan) -> tuple[TensorSpec, ...]:
    """The norm layers' running numbers of the plan's generator: what its file holds beside its weights."""
    make_generator, _ = MODELS[plan.model]
    with torch.device("meta"):
        named = make_generator(size_of(plan)).named_buffers()
    return _specs("statistics/generator.", ((name, b) for name, b in named if b.is_floating_point()))


def _specs(prefix: str, named: Iterable[tuple[str, Tensor]]) -> tuple[TensorSpec, ...]:
    result, start = [], 0
    for name, tensor in named:
        result.append(TensorSpec(prefix + name, tuple(tensor.shape), start, start + tensor.numel()))
        start += tensor.numel()
    return tuple(result)


@torch.no_grad()
def initial_weights(plan: Plan) -> Vectors:
    """Iteration 0's weights: N(0, 0.02) for kernels, N(1, 0.02) for norm scales. Source: Radford et al. 2015, section 4."""
    networks, layout = Networks(plan), layout_of(plan)
    weights = networks.read()
    random = torch.Generator().manual_seed(plan.seed)
    for part in PARTS:
        for spec in layout.part(part):
            values = weights.part(part)[spec.start : spec.stop]
            if len(spec.shape) == 4:
                values.normal_(0, 0.02, generator=random)
            elif spec.name.endswith("bias"):
                values.zero_()
            else:
                values.normal_(1, 0.02, generator=random)
    return weights
