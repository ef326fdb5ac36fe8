"""Two machines' answers to the same lease, compared by their trails: honest ones agree, cheats agree with nobody."""

import warnings

import pytest
import torch

from gan_core.errors import PayloadError
from gan_core.layout import PARTS, Vectors
from gan_core.networks.gradients import contribute
from gan_core.networks.models import Networks, initial_weights, layout_of
from gan_core.policies.codecs import CODECS, decode, encode
from gan_core.policies.sampling import cut_units
from gan_core.policies.trails import FOLDED, Answer, Trail, compare, decode_trail


@pytest.fixture(scope="module", params=["local_steps", "gradient"])
def lease(request, tiny, digits):
    """(plan, layout, units, weights): four units of 10 batches each; a lease has two of them."""
    plan = tiny.changed(
        contribution=request.param, generator_width=8, discriminator_width=8, images_per_unit=80, quorum=320
    )
    units, _ = cut_units(plan, 0, len(digits))
    return plan, layout_of(plan), units, initial_weights(plan)


@pytest.fixture(scope="module")
def answer_of(lease, digits):
    """What a machine sends that computes these units and says that they are the lease's first two."""
    plan, layout, units, weights = lease

    def answer(mine=units[:2], codec="int8") -> Answer:
        trail = Trail(layout, units[:2])
        vectors, _ = contribute(plan, Networks(plan), digits, mine, weights, see=trail.add)
        return Answer(decode(encode(vectors, layout, codec, units[0].seed), layout, codec), trail.encode())

    return answer


@pytest.fixture(scope="module")
def honest(answer_of) -> Answer:
    return answer_of()


def agree(lease, *answers: Answer) -> bool:
    plan, layout, units, _ = lease
    return compare(plan, layout, units[:2], answers).agree


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("device", ["threads", "library"])
def test_honest_answers_of_other_devices_agree_whatever_the_codec(lease, answer_of, device, codec):
    torch.set_num_threads(2 if device == "threads" else 1)
    try:
        with warnings.catch_warnings(action="ignore"), torch.backends.mkldnn.flags(enabled=device == "threads"):
            other = answer_of(codec=codec)
    finally:
        torch.set_num_threads(1)
    honest = answer_of(codec=codec)
    assert agree(lease, honest, other)
    assert agree(lease, other, honest)


def times(answer: Answer, factor: float) -> Answer:
    return Answer(Vectors(*(factor * answer.claimed.part(part) for part in PARTS)), answer.trail)


def with_longer_tensor(lease, answer: Answer) -> Answer:
    """Its smallest one, of which neither the trail nor the part's length says anything."""
    claimed, spec = answer.claimed.clone(), min(lease[1].generator, key=lambda spec: spec.stop - spec.start)
    claimed.generator[spec.start : spec.stop] *= 2
    return Answer(claimed, answer.trail)


CHEATS = {
    "one tensor twice as long, with an honest trail": lambda lease, answer_of, honest: with_longer_tensor(
        lease, honest
    ),
    "one of two units, made as long, with an honest trail": lambda lease, answer_of, honest: times(
        Answer(answer_of(lease[2][:1]).claimed, honest.trail), 2**0.5
    ),
    "somebody else's units": lambda lease, answer_of, honest: answer_of(lease[2][2:]),
    "twice as long": lambda lease, answer_of, honest: times(honest, 2.0),
    "the wrong way": lambda lease, answer_of, honest: times(honest, -1.0),
    "nothing, with an honest trail": lambda lease, answer_of, honest: times(honest, 0.0),
    "noise, with an honest trail": lambda lease, answer_of, honest: Answer(
        Vectors(*(torch.randn_like(honest.claimed.part(p)) * honest.claimed.part(p).std() for p in PARTS)), honest.trail
    ),
    "honest work, with a trail of nothing": lambda lease, answer_of, honest: Answer(
        honest.claimed, bytes(len(honest.trail))
    ),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_agree_with_nobody_honest(lease, answer_of, honest, cheat):
    cheated = CHEATS[cheat](lease, answer_of, honest)
    assert not agree(lease, honest, cheated)
    assert not agree(lease, cheated, honest)


def test_two_that_did_nothing_prove_nothing(lease, honest):
    nothing = Answer(times(honest, 0.0).claimed, bytes(len(honest.trail)))
    assert not agree(lease, nothing, nothing)


def test_what_two_say_of_each_other_is_kept(lease, honest):
    """For the instructor who asks later why a contribution was taken for valid."""
    plan, layout, units, _ = lease
    for figures in compare(plan, layout, units[:2], (honest, honest)).figures:
        for part in PARTS:
            assert figures[part].cosine == pytest.approx(1, abs=0.01)
            assert figures[part].length == pytest.approx(1, abs=0.05)


def test_a_trail_has_the_same_bytes_anywhere_and_one_size(lease, answer_of, honest):
    plan, layout, units, _ = lease
    assert answer_of().trail == honest.trail
    decoded = decode_trail(honest.trail, plan, layout, units[:2])
    for part in PARTS:
        stretches = 3 if plan.contribution == "local_steps" else 1  # to the 5th, 10th and 20th batch
        assert decoded[part].shape == (stretches, min(FOLDED, layout.length(part)))
    for wrong in (b"", honest.trail[:-1], honest.trail + b"0"):
        with pytest.raises(PayloadError, match=r"trail has [\d,]+ bytes, this lease's have [\d,]+"):
            decode_trail(wrong, plan, layout, units[:2])


def test_wild_numbers_agree_with_nobody(lease, honest):
    """They are finite, and their squares are not. A gradient is compared itself, so its trail is not looked at."""
    wild_trail = Answer(honest.claimed, b"\x7f" * len(honest.trail))
    for wild in (times(honest, 1e38), *([wild_trail] if lease[0].contribution == "local_steps" else [])):
        assert not agree(lease, honest, wild)
        assert not agree(lease, wild, honest)
