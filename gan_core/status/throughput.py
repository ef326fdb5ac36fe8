"""How fast a training moves, what slows it down and when it will be done: figures into sentences, nothing else."""

import re
from collections.abc import Sequence
from statistics import quantiles

from gan_core.plan import Plan
from gan_core.store.viewers.watching import TimeBreakdown
from gan_core.units import Presence, TrainingState, counted

FRESH = 3  # closed iterations before there is anything to foresee

# Shares from which something is worth a sentence: below them it is the ordinary course of a class.
REFUSED, LATE, COMBINING, ALONE, TRANSFER, IDLE = 0.05, 0.10, 0.20, 0.20, 0.35, 0.30


def what_slows(state: TrainingState, times: TimeBreakdown) -> list[str]:
    """What takes time that it needn't, the worst first; each with the figure it follows from and what helps. Never empty."""
    if state is not TrainingState.RUNNING:
        return [f"It isn't running: {state}."]
    if not times.online:
        return ["No machine is online, so no unit is computed. Start a worker."]
    if times.iterations < FRESH:
        return [f"Too early to tell: {counted(times.iterations, 'closed iteration')}, {FRESH} are needed."]
    answers = times.accepted + times.late + times.refused
    shares = {
        "refused": (_share(times.refused, answers), REFUSED),
        "late": (_share(times.late, answers), LATE),
        "combining": (_share(times.combining_seconds, times.seconds), COMBINING),
        "alone": (_share(times.alone_seconds, times.seconds), ALONE),
        "transfer": (1 - _share(times.compute_seconds, times.lease_seconds) if times.lease_seconds else 0.0, TRANSFER),
        "idle": (0.0 if times.open else 1 - _share(times.busy, times.online), IDLE),
    }
    worst = sorted((name for name, (share, limit) in shares.items() if share > limit), key=lambda n: -shares[n][0])
    if not worst:
        return [
            f"Nothing slows it down: machines compute for {1 - shares['transfer'][0]:.0%} of the time of their leases."
        ]
    return [_sentence(name, f"{shares[name][0]:.0%}", times) for name in worst]


def _sentence(name: str, share: str, times: TimeBreakdown) -> str:
    of = f"in the last {times.iterations} iterations"
    match name:
        case "refused":
            return f"{share} of the images {of} were refused; the machines' last messages say why."
        case "late":
            return f"{share} of the images {of} came too late to count. `quorum: auto` wastes less work."
        case "combining":
            return (
                f"{share} of the time {of} went into combining answers and publishing weights, while no machine computed. "
                "Fewer, longer iterations help: a larger `quorum` or `target_seconds`."
            )
        case "alone":
            return (
                f"{share} of the time {of} the class waited for one straggler, most often {times.alone}. "
                "Smaller units (`images_per_unit`) or `quorum: auto` help."
            )
        case "transfer":
            return (
                f"{share} of the time of the leases goes into fetching weights and submitting answers. "
                "`codec: int4`, `weights_codec: int4` or a larger `target_seconds` help."
            )
        case _:
            return (
                f"{times.online - times.busy} of {counted(times.online, 'machine')} "
                f"{'has' if times.online - times.busy == 1 else 'have'} nothing to compute, and no unit is open. "
                "`quorum: auto` makes work for each."
            )


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole else 0.0


def seconds_left(progress: float, images: int, speeds: Sequence[float]) -> tuple[float, float] | None:
    """Between which two times the rest takes: at the speeds of the better and the worse fifth of the latest iterations.

    Args:
        progress: share of the training that is done, 0 to 1.
        images: seen so far.
        speeds: images per second of each of the latest iterations, pauses between them included.

    Returns:
        Seconds at best and at worst; None as long as there is nothing to foresee it from.
    """
    usable = [speed for speed in speeds if speed > 0]
    if not progress or len(usable) < FRESH:
        return None
    rest = images / progress * (1 - progress)
    slow, *_, fast = quantiles(usable, n=5, method="inclusive")
    return rest / fast, rest / slow


def time_left(left: tuple[float, float] | None) -> str:
    """What `seconds_left` gave, for people."""
    if left is None:
        return "not known yet"
    best, worst = map(spoken, left)
    return best if best == worst else f"{best} to {worst}"


def spoken(seconds: float) -> str:
    """A length of time as people say it: two units at most."""
    for unit, length, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= length:
            rest = int(seconds % length) // part
            return f"{int(seconds) // length} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{seconds:.0f} s"


# What the database last said to a machine, for somebody who hasn't read the code.
WORDS = (
    (r"^two programs work", "two programs work under this name; give one machine another name"),
    (r"^suspended$", "suspended; the instructor knows why"),
    (r"^one of its answers is invalid$", "one of its answers earned nothing; its owner was told why"),
    (r"^iteration [\d]+ closed before", "its last answer came just after its iteration closed"),
    (r"came first$", "another machine was faster with the same units"),
    (r"took over$", "was silent for too long, and another machine took its units over"),
    (r"^the lease was given back", "answered for units that it had given back"),
    (r"^no batch was finished for", "was stuck, and gave its units back"),
    (r"^the weights of its iteration are gone", "was too slow for its iteration, and takes newer units"),
    (r"^payload has", "its last answer has the wrong size; it needs the class's version of classgan"),
    (r"^the shift ended$", "ended in the middle of its units, which go to others"),
)


def health(presence: Presence, silent: float, units: int, busy_seconds: float, message: str) -> str:
    """How a machine is, in plain words: from what was last said to it, and what it has in hand."""
    if message.startswith("computes on "):
        return message
    for pattern, words in WORDS:
        if re.search(pattern, message):
            return words
    if message:
        return f"could not finish its last units: {message.rstrip('.')}"
    if presence is not Presence.ONLINE:
        return f"silent for {spoken(silent)}" + ("; its units go to others" if units else "")
    if units:
        return f"computes {counted(units, 'unit')} for {spoken(busy_seconds)} now"
    return "ready, waits for units"


def flops_per_image(plan: Plan) -> float:
    """Floating-point operations of one training step for each real image: two of D's passes, two of G's.

    D learns from a real and a generated image (forward and backward, 3 times a forward pass each) and hands G its gradient
    (2 more); G draws twice and learns once (4). A multiply-add is two operations; everything but convolutions is left out.
    Source: Kaplan et al. 2020 (arXiv:2001.08361), section 2.1: a backward pass costs two forward ones.
    """
    d_side, d_width, d_macs = plan.image_size // 2, plan.discriminator_width, 0
    d_macs += d_side**2 * 16 * plan.channels * d_width
    g_side, g_width, g_macs = plan.image_size // 2, plan.generator_width, 0
    g_macs += g_side**2 * 16 * plan.channels * g_width
    while d_side > 4:
        d_side, g_side = d_side // 2, g_side // 2
        d_macs += d_side**2 * 16 * d_width * d_width * 2
        g_macs += g_side**2 * 16 * g_width * g_width * 2
        d_width, g_width = d_width * 2, g_width * 2
    d_macs += 16 * d_width
    g_macs += 16 * plan.latent_dim * g_width
    return 2.0 * (8 * d_macs + 4 * g_macs)
