"""Encodes tensors as bytes and decodes them, for contributions and weights.

A payload is a safetensors file whose header is fully known beforehand: names, types, shapes and offsets follow from
the plan's model and the codec. Decoding compares the header with the one that must be there, then the checksum, and
only then allocates. Nothing in a payload is ever executed or interpreted.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gan_core.errors import PayloadError
from gan_core.layout import PARTS, Layout, Vectors
from gan_core.plan import CodecName
from gan_core.policies.sampling import seed_of
from gan_core.units import PAYLOAD_FORMAT

VERSION = str(PAYLOAD_FORMAT)
NO_CHECKSUM = "0" * 32
BLOCK = 256  # int8: numbers that share a scale; 1.3 % relative error on heavy-tailed gradients
BLOCK4 = 64  # int4: numbers that share a scale
ROUND_UP = 1 + 2.0**-10  # more than half precision rounds off
SMALLEST = 2.0**-149  # of float32: a scale below would be zero
LOWEST = -100  # exponent that leaves a half-precision scale all its digits in float32
FLOAT32_MAX = torch.finfo(torch.float32).max


@dataclass(frozen=True, slots=True)
class Codec:
    """How one flat tensor becomes named arrays and back."""

    tolerance: float  # largest error of a number, as a share of its block's (or tensor's) largest magnitude
    fields: Callable[[int], tuple[tuple[str, str, int], ...]]  # length → (suffix, safetensors dtype, elements)
    encode: Callable[[Tensor, torch.Generator], tuple[np.ndarray, ...]]
    decode: Callable[[tuple[np.ndarray, ...], int], Tensor]


def _float32_encode(values: Tensor, random: torch.Generator) -> tuple[np.ndarray, ...]:
    return (np.ascontiguousarray(values.numpy()),)


def _float32_decode(arrays: tuple[np.ndarray, ...], length: int) -> Tensor:
    return torch.from_numpy(arrays[0].astype(np.float32))  # a copy: the payload's bytes are read-only


def _float16_encode(values: Tensor, random: torch.Generator) -> tuple[np.ndarray, ...]:
    # Gradients near 1e-8 would vanish in half precision: scaled by a power of two, the largest lands in [2^14, 2^15).
    largest = values.abs().max() if values.numel() else torch.tensor(0.0)
    exponent = int(torch.frexp(largest.double()).exponent) if largest > 0 else 0
    return _times_power_of_two(values, 15 - exponent).half().numpy(), np.array([exponent], dtype=np.float32)


def _float16_decode(arrays: tuple[np.ndarray, ...], length: int) -> Tensor:
    exponent = _whole_exponent(arrays[1][0])
    if not np.isfinite(arrays[0]).all():
        raise PayloadError("half-precision numbers that are not finite")
    values = _times_power_of_two(torch.from_numpy(arrays[0].astype(np.float32)), exponent - 15)
    return values.clamp_(-FLOAT32_MAX, FLOAT32_MAX)  # the largest numbers may have been rounded up beyond it


def _whole_exponent(found: np.float32) -> int:
    exponent = float(found)
    if not (exponent.is_integer() and -200 <= exponent <= 200):
        raise PayloadError(f"scale exponent {exponent} is not a whole number from -200 to 200")
    return int(exponent)


def _times_power_of_two(values: Tensor, exponent: int) -> Tensor:
    """values * 2^exponent, in two factors: one alone may be beyond float32."""
    half = exponent // 2
    return values * 2.0**half * 2.0 ** (exponent - half)


def _int8_encode(values: Tensor, random: torch.Generator) -> tuple[np.ndarray, ...]:
    padded = torch.nn.functional.pad(values, (0, -values.numel() % BLOCK)).view(-1, BLOCK)
    scale = (padded.abs().amax(dim=1, keepdim=True) / 127).clamp_min(SMALLEST)
    steps = (padded / scale).clamp_(-127, 127)
    # Stochastic rounding keeps the mean right; its randomness is the unit's, so a unit still encodes to the same bytes.
    rounded = (steps + torch.rand(steps.shape, generator=random)).floor_().clamp_(-127, 127)
    return rounded.to(torch.int8).view(-1)[: values.numel()].numpy(), scale.view(-1).numpy()


def _int8_decode(arrays: tuple[np.ndarray, ...], length: int) -> Tensor:
    if not np.isfinite(arrays[1]).all() or (arrays[1] < 0).any():
        raise PayloadError("a block's scale is negative, infinite or not a number")
    values, scales = torch.from_numpy(arrays[0].astype(np.float32)), torch.from_numpy(arrays[1].astype(np.float32))
    whole = length - length % BLOCK
    values[:whole].view(-1, BLOCK).mul_(scales[: whole // BLOCK].view(-1, 1))
    values[whole:].mul_(scales[-1])
    # In place, and clamped only where it may be needed: the coordinator decodes a whole class's contributions one after the other.
    return values.clamp_(-FLOAT32_MAX, FLOAT32_MAX) if float(scales.max()) > FLOAT32_MAX / 128 else values


def _int4_encode(values: Tensor, random: torch.Generator) -> tuple[np.ndarray, ...]:
    padded = torch.nn.functional.pad(values, (0, -values.numel() % BLOCK4)).view(-1, BLOCK4)
    largest = padded.abs().amax(dim=1, keepdim=True)
    exponent = int(torch.frexp(largest.max().double()).exponent) if float(largest.max()) > 0 else 0
    # Half a number's precision is enough for a scale, if no step falls beyond ±7 for it. The smallest is what half precision has.
    scale = (_times_power_of_two(largest, 15 - exponent) / 7 * ROUND_UP).half().clamp_min(2.0**-24)
    steps = _times_power_of_two(padded, 15 - exponent) / scale.float()
    rounded = (steps + torch.rand(steps.shape, generator=random)).floor_().clamp_(-7, 7)
    numbers = (rounded.view(-1)[: values.numel()] + 8).to(torch.uint8)  # 1 to 15
    half = -(-values.numel() // 2)
    packed = numbers[:half].clone()
    packed[: values.numel() - half] |= numbers[half:] << 4
    return packed.numpy(), scale.view(-1).numpy(), np.array([exponent], dtype=np.float32)


def _int4_decode(arrays: tuple[np.ndarray, ...], length: int) -> Tensor:
    packed, scales = torch.from_numpy(arrays[0].copy()), torch.from_numpy(arrays[1].astype(np.float32))
    shift, half = _whole_exponent(arrays[2][0]) - 15, -(-length // 2)
    values = torch.cat([packed & 15, packed[: length - half] >> 4]).float().sub_(8)
    if not bool(((scales > 0) & scales.isfinite()).all()):
        raise PayloadError("a block's scale is not above zero, infinite or not a number")
    if float(values.min()) < -7 or (length % 2 and packed[-1] > 15):
        raise PayloadError("a number that 4 bits have and this codec doesn't use")
    scales = _times_power_of_two(scales, max(shift, LOWEST))
    whole = length - length % BLOCK4
    values[:whole].view(-1, BLOCK4).mul_(scales[: whole // BLOCK4].view(-1, 1))
    values[whole:].mul_(scales[-1])
    if shift < LOWEST:
        values = _times_power_of_two(values, shift - LOWEST)
    return values.clamp_(-FLOAT32_MAX, FLOAT32_MAX)


CODECS: Mapping[CodecName, Codec] = MappingProxyType(
    {
        "float32": Codec(0.0, lambda n: (("", "F32", n),), _float32_encode, _float32_decode),
        "float16": Codec(
            2.0**-11, lambda n: (("", "F16", n), (".exponent", "F32", 1)), _float16_encode, _float16_decode
        ),
        "int8": Codec(
            1 / 127, lambda n: (("", "I8", n), (".scale", "F32", -(-n // BLOCK))), _int8_encode, _int8_decode
        ),
        # Two numbers a byte: one of the tensor's first half, one of its second.
        "int4": Codec(
            1 / 7 + 2.0**-9,
            lambda n: ((".halves", "U8", -(-n // 2)), (".scale", "F16", -(-n // BLOCK4)), (".exponent", "F32", 1)),
            _int4_encode,
            _int4_decode,
        ),
    }
)
DTYPES: Mapping[str, np.dtype] = MappingProxyType(
    {
        "F32": np.dtype("<f4"),
        "F16": np.dtype("<f2"),
        "I8": np.dtype("i1"),
        "U8": np.dtype("u1"),
    }
)


@lru_cache(maxsize=16)
def _header_form(layout: Layout, codec: CodecName) -> tuple[bytes, int]:
    """The header with zeros in the checksum's place, and the size of the body in bytes."""
    about = {"format": "classgan", "version": VERSION, "codec": codec, "checksum": NO_CHECKSUM}
    entries: dict[str, Any] = {"__metadata__": about}
    offset = 0
    for spec in (s for part in PARTS for s in layout.part(part)):
        length = spec.stop - spec.start
        for suffix, dtype, elements in CODECS[codec].fields(length):
            size = elements * DTYPES[dtype].itemsize
            shape = list(spec.shape) if elements == length and not suffix else [elements]
            entries[spec.name + suffix] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
            offset += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8), offset  # safetensors aligns the body to 8 bytes


def _header(layout: Layout, codec: CodecName, checksum: str) -> bytes:
    """The one header that a payload of this layout, codec and body can have."""
    form, _ = _header_form(layout, codec)
    return form.replace(NO_CHECKSUM.encode(), checksum.encode(), 1)


def payload_size(layout: Layout, codec: CodecName) -> int:
    """Bytes of every payload of this layout and codec: always the same."""
    header, body = _header_form(layout, codec)
    return 8 + len(header) + body


def encode(vectors: Vectors, layout: Layout, codec: CodecName, seed: int = 0) -> bytes:
    """Payload of these vectors.

    Args:
        seed: the first unit's, so that a lease encodes to the same bytes anywhere. The stochastic rounding (int8 and int4) has its
            own, made of it: with the unit's, its random numbers would be those of the unit's noise.

    Raises:
        PayloadError: a vector has another length than the layout, or holds a number that isn't finite.
    """
    random = torch.Generator().manual_seed(seed_of(seed, "rounding"))
    pieces: list[np.ndarray] = []
    for part in PARTS:
        vector = vectors.part(part)
        if vector.numel() != layout.length(part):
            raise PayloadError(f"{part} has {vector.numel():,} numbers, the model has {layout.length(part):,}")
        if not _is_finite(vector):
            raise PayloadError(f"{part} holds numbers that are not finite")
        vector = vector.detach().to("cpu", torch.float32).contiguous()
        for spec in layout.part(part):
            pieces.extend(CODECS[codec].encode(vector[spec.start : spec.stop], random))
    digest = _new_checksum()
    for piece in pieces:
        digest.update(piece.data)
    header = _header(layout, codec, digest.hexdigest())
    return b"".join((len(header).to_bytes(8, "little"), header, *(piece.data for piece in pieces)))


def decode(payload: bytes | memoryview, layout: Layout, codec: CodecName) -> Vectors:
    """Vectors of this payload.

    Raises:
        PayloadError: anything but the one form that this layout and codec allow; says what was found and what must be there.
    """
    view = memoryview(payload)
    expected = payload_size(layout, codec)
    if len(view) != expected:
        raise PayloadError(f"payload has {len(view):,} bytes, this training's have {expected:,}")
    header_size = int.from_bytes(view[:8], "little")
    form, _ = _header_form(layout, codec)
    if header_size != len(form):
        raise PayloadError(f"header says {header_size:,} bytes, this training's have {len(form):,}")
    body = view[8 + header_size :]
    digest = _new_checksum()
    digest.update(body)
    wanted = _header(layout, codec, digest.hexdigest())
    if view[8 : 8 + header_size] != wanted:
        raise PayloadError(_difference(bytes(view[8 : 8 + header_size]), wanted))
    return _decode_body(body, layout, codec)


def _decode_body(body: memoryview, layout: Layout, codec: CodecName) -> Vectors:
    parts, offset = [], 0
    for part in PARTS:
        vector = torch.empty(layout.length(part))
        for spec in layout.part(part):
            length, coder, arrays = spec.stop - spec.start, CODECS[codec], []
            for _, dtype, elements in coder.fields(length):
                arrays.append(np.frombuffer(body, DTYPES[dtype], elements, offset))
                offset += elements * DTYPES[dtype].itemsize
            vector[spec.start : spec.stop] = coder.decode(tuple(arrays), length)
        if not _is_finite(vector):
            bad = next(s.name for s in layout.part(part) if not _is_finite(vector[s.start : s.stop]))
            raise PayloadError(f"{bad} holds numbers that are not finite")
        parts.append(vector)
    return Vectors(*parts)


def _is_finite(vector: Tensor) -> bool:
    """Whether all numbers are. Smallest and largest are found in a tenth of the time of `isfinite`, and are NaN if one is."""
    return not vector.numel() or bool(torch.stack(vector.aminmax()).isfinite().all())


def _new_checksum() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=16)


def _difference(got: bytes, wanted: bytes) -> str:
    """The first thing in which a header is not the one that must be there."""
    try:
        found = json.loads(got)
        expected = json.loads(wanted)
        for name, entry in expected.items():
            if found.get(name) != entry:
                if name == "__metadata__" and {**found[name], "checksum": ""} == {**entry, "checksum": ""}:
                    return "checksum does not match: the payload was damaged on its way"
                return f"{name}: expected {entry}, got {found.get(name)}"
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        return "header is not what this training's model gives"
    return "header is written in another way than this training's"
