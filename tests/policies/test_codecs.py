"""Payloads: what goes in comes out within the stated tolerance, and nothing else gets in."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gan_core.errors import PayloadError
from gan_core.layout import PARTS, Layout, TensorSpec, Vectors
from gan_core.networks.models import initial_weights, layout_of
from gan_core.policies import codecs
from gan_core.policies.codecs import BLOCK, CODECS, decode, encode, payload_size
from gan_core.presets import preset


def layout_for(*shapes: tuple[int, ...]) -> Layout:
    """A generator of these tensors, a discriminator of one number."""
    specs, start = [], 0
    for number, shape in enumerate(shapes):
        size = int(np.prod(shape))
        specs.append(TensorSpec(f"generator/{number}.weight", shape, start, start + size))
        start += size
    one = (TensorSpec("discriminator/0.weight", (1,), 0, 1),)
    return Layout(tuple(specs), one)


def vectors_of(values: torch.Tensor) -> Vectors:
    return Vectors(values, torch.tensor([0.5]))


SPECIAL = {
    "zeros": torch.zeros(700),
    "one value": torch.full((300,), 3.0),
    "subnormal": torch.full((300,), 1e-44),
    "gradients near 1e-8": torch.randn(600, generator=torch.Generator().manual_seed(0)) * 1e-8,
    "huge": torch.tensor([3e38, -3e38, 1.0, 0.0] * 100),
    "far apart": torch.tensor([1e4, 1e-4, -1e-2, 0.0] * 100),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("case", SPECIAL)
def test_a_round_trip_stays_within_the_stated_tolerance(codec, case):
    values = SPECIAL[case]
    layout = layout_for((len(values),))
    back = decode(encode(vectors_of(values), layout, codec, seed=1), layout, codec).generator
    for start in range(0, len(values), BLOCK):
        block, got = values[start : start + BLOCK].double(), back[start : start + BLOCK].double()
        largest = (values if codec == "float16" else block).abs().max().double()
        smallest = 2.0**-39 * float(values.abs().max()) if codec == "int4" else 0.0  # of a scale in half precision
        assert (got - block).abs().max() <= CODECS[codec].tolerance * largest + smallest + 2e-45, case


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=60, deadline=None)
@given(
    values=arrays.arrays(
        np.float32, st.integers(1, 600), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
    )
)
def test_any_finite_numbers_survive_within_the_tolerance(codec, values):
    values = torch.from_numpy(values)
    layout = layout_for((len(values),))
    back = decode(encode(vectors_of(values), layout, codec, seed=2), layout, codec).generator
    assert (back.double() - values.double()).abs().max() <= CODECS[
        codec
    ].tolerance * values.double().abs().max() + 2e-45


@pytest.mark.parametrize("codec", CODECS)
def test_shapes_of_every_kind_travel(codec):
    """No dimension at all, one number, more than a block, not a multiple of a block; and views that aren't contiguous."""
    layout = layout_for((), (1,), (3, 5, 4, 4), (BLOCK, 2))
    length = layout.length("generator")
    strided = torch.randn(length, 2, generator=torch.Generator().manual_seed(3))[:, 0]
    assert not strided.is_contiguous()
    back = decode(encode(vectors_of(strided), layout, codec), layout, codec)
    assert torch.allclose(back.generator, strided, atol=0.7 if codec == "int4" else 0.05)


def test_float32_is_exact(tiny):
    weights, layout = initial_weights(tiny), layout_of(tiny)
    back = decode(encode(weights, layout, "float32"), layout, "float32")
    assert all(torch.equal(back.part(p), weights.part(p)) for p in PARTS)


@pytest.mark.parametrize(("codec", "most"), [("int8", 127), ("int4", 7)])
def test_stochastic_rounding_is_the_seeds_and_right_on_average(codec, most):
    values = torch.full((256,), 0.3)
    values[::64] = most  # one step of each block is 1 (of int4's nearly), so 0.3 rounds to 0 or 1
    layout = layout_for((256,))
    payloads = [encode(vectors_of(values), layout, codec, seed) for seed in range(200)]
    assert payloads[0] == encode(vectors_of(values), layout, codec, 0)
    assert payloads[0] != payloads[1]
    decoded = torch.stack([decode(p, layout, codec).generator for p in payloads])
    assert decoded[:, values < 1].mean().item() == pytest.approx(0.3, abs=0.01)
    assert decoded[:, ::64].mean().item() == pytest.approx(most, rel=0.002)  # the largest are right, too


def test_a_block_far_below_its_tensors_largest_number_is_still_right_on_average():
    """int4 keeps its scales in half precision, which ends long before float32."""
    values = torch.full((128,), 3.0)
    values[64:] = 3e-11
    layout = layout_for((128,))
    decoded = [decode(encode(vectors_of(values), layout, "int4", seed), layout, "int4") for seed in range(400)]
    assert torch.stack([one.generator[64:] for one in decoded]).mean().item() == pytest.approx(3e-11, rel=0.1)


def test_rounding_and_the_units_noise_are_drawn_independently():
    """Both come from the unit's seed. Were it the same generator, who is rounded up would follow from the noise."""
    seed, values = 7, torch.full((256,), 0.5)
    values[0] = 127.0  # one step of the block is exactly 1, so 0.5 is rounded up where the random number is above ½
    layout = layout_for((256,))
    up = decode(encode(vectors_of(values), layout, "int8", seed), layout, "int8").generator[1:]
    noise = torch.rand(256, generator=torch.Generator().manual_seed(seed))[1:]
    assert 0.35 < ((noise > 0.5) == (up > 0.5)).float().mean() < 0.65


def test_every_payload_of_a_plan_has_the_same_size(tiny):
    layout = layout_of(tiny)
    for codec in CODECS:
        assert {len(encode(initial_weights(tiny.changed(seed=s)), layout, codec)) for s in range(3)} == {
            payload_size(layout, codec)
        }


@pytest.mark.parametrize(("codec", "most"), [("int8", 6_500_000), ("int4", 3_500_000)])
def test_what_a_dcgan_contribution_takes_on_the_line(codec, most):
    assert payload_size(layout_of(preset("dcgan")), codec) <= most


@pytest.mark.parametrize("codec", CODECS)
def test_payloads_are_ordinary_safetensors_files(tiny, codec):
    """An independent reader agrees on names and shapes."""
    layout = layout_of(tiny)
    tensors = safetensors.numpy.load(encode(initial_weights(tiny), layout, codec))
    for spec in (*layout.generator, *layout.discriminator):
        if codec == "int4":  # no reader has a type for half a byte: two numbers lie in one
            assert tensors[f"{spec.name}.halves"].size == -(-(spec.stop - spec.start) // 2)
        else:
            assert tensors[spec.name].shape == spec.shape


# What must not get in. Each refusal says what was found.


@pytest.fixture
def good(tiny):
    layout = layout_of(tiny)
    return encode(initial_weights(tiny), layout, "float32"), layout


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 100, -1])
def test_truncated_payloads_are_refused(good, cut):
    payload, layout = good
    with pytest.raises(PayloadError, match="bytes, this training's have"):
        decode(payload[:cut], layout, "float32")


def test_oversized_payloads_are_refused(good):
    payload, layout = good
    with pytest.raises(PayloadError, match="bytes, this training's have"):
        decode(payload + b"\0", layout, "float32")


def test_a_size_that_lies_is_refused_before_anything_is_allocated(good):
    payload, layout = good
    with pytest.raises(PayloadError, match="header says"):
        decode((2**62).to_bytes(8, "little") + payload[8:], layout, "float32")


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_anywhere_is_refused(data):
    layout = layout_for((40,), (3, 3))
    payload = bytearray(encode(vectors_of(torch.arange(49, dtype=torch.float32)), layout, "int8"))
    bit = data.draw(st.integers(0, 8 * len(payload) - 1))
    payload[bit // 8] ^= 1 << bit % 8
    with pytest.raises(PayloadError):
        decode(bytes(payload), layout, "int8")


@settings(max_examples=300, deadline=None)
@given(noise=st.binary(max_size=2000))
def test_bytes_that_never_were_a_payload_are_refused(noise):
    layout = layout_for((40,))
    size = payload_size(layout, "float16")
    for candidate in (
        noise,
        noise.ljust(size, b"\0")[:size],
        (len(noise).to_bytes(8, "little") + noise).ljust(size, b"{")[:size],
    ):
        with pytest.raises(PayloadError):
            decode(candidate, layout, "float16")


def test_another_models_payload_is_refused(tiny, good):
    payload, _ = good
    with pytest.raises(PayloadError, match="this training's have"):
        decode(payload, layout_of(tiny.changed(generator_width=5)), "float32")


def rewritten(payload: bytes, change) -> bytes:
    """The payload with a changed header of the same length, as far as that is possible."""
    size = int.from_bytes(payload[:8], "little")
    header = json.loads(payload[8 : 8 + size])
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    return payload[:8] + text.ljust(size, b" ")[:size] + payload[8 + size :]


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h["generator/0.weight"].update(shape=[8, 2, 4, 4]),
        lambda h: h["generator/0.weight"].update(dtype="F16"),
        lambda h: h["generator/0.weight"].update(data_offsets=[4, 8]),
        lambda h: h["__metadata__"].update(version="1"),
        lambda h: h["__metadata__"].update(codec="float16"),
        lambda h: h.pop("generator/0.weight"),
        lambda h: h.update(extra=1),
    ],
    ids=["shape", "dtype", "offsets", "version", "codec", "missing", "extra"],
)
def test_a_header_that_says_anything_else_is_refused(good, change):
    payload, layout = good
    with pytest.raises(PayloadError):
        decode(rewritten(payload, change), layout, "float32")


def test_a_damaged_body_is_called_damaged(good):
    payload, layout = good
    with pytest.raises(PayloadError, match="checksum does not match"):
        decode(payload[:-1] + bytes([payload[-1] ^ 1]), layout, "float32")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_refused_on_both_sides(tiny, codec, value, monkeypatch):
    layout, weights = layout_of(tiny), initial_weights(tiny)
    weights.discriminator[3] = value
    with pytest.raises(PayloadError, match="discriminator holds numbers that are not finite"):
        encode(weights, layout, codec)
    monkeypatch.setattr(codecs, "_is_finite", lambda vector: True)  # a sender that doesn't check
    payload = encode(weights, layout, codec)
    monkeypatch.undo()
    with pytest.raises(PayloadError, match=r"not finite|not a number|not a whole number"):
        decode(payload, layout, codec)


@pytest.mark.parametrize(
    ("codec", "spoilt", "sentence"),
    [
        ("int8", lambda numbers, scale: (numbers, -scale), "scale is negative"),
        ("int8", lambda numbers, scale: (numbers, scale * math.inf), "scale is negative, infinite"),
        ("float16", lambda numbers, exponent: (numbers, exponent + 0.5), "is not a whole number"),
        ("float16", lambda numbers, exponent: (numbers, exponent + 1_000), "from -200 to 200"),
        ("int4", lambda halves, scale, exponent: (halves & 0xF0, scale, exponent), "doesn't use"),
        ("int4", lambda halves, scale, exponent: (halves & 0x0F, scale, exponent), "doesn't use"),
        ("int4", lambda halves, scale, exponent: (halves, -scale, exponent), "not above zero"),
        ("int4", lambda halves, scale, exponent: (halves, scale * np.float16("inf"), exponent), "not above zero"),
        ("int4", lambda halves, scale, exponent: (halves, scale, exponent + 1_000), "from -200 to 200"),
    ],
)
def test_a_scale_that_no_sender_of_ours_writes_is_refused(tiny, codec, spoilt, sentence, monkeypatch):
    """By a sender that writes it on purpose, with the right size and checksum."""
    layout, weights, ours = layout_of(tiny), initial_weights(tiny), CODECS[codec]
    theirs = replace(ours, encode=lambda values, random: spoilt(*ours.encode(values, random)))
    monkeypatch.setattr(codecs, "CODECS", {**CODECS, codec: theirs})
    payload = encode(weights, layout, codec)
    monkeypatch.undo()
    with pytest.raises(PayloadError, match=sentence):
        decode(payload, layout, codec)


def test_a_pickle_is_just_bytes(tiny):
    import pickle

    layout = layout_of(tiny)
    with pytest.raises(PayloadError):
        decode(pickle.dumps({"generator": [1, 2, 3]}), layout, "float32")
