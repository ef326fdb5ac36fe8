"""What travels: bytes of a contribution and of the weights, and what that makes for 1,000 images."""

from bench.options import Options
from bench.report import Row, Section, at_most
from gan_core.networks.models import layout_of
from gan_core.networks.update import initial_state
from gan_core.plan import CodecName
from gan_core.policies.announcements import CHANGE
from gan_core.policies.codecs import CODECS, encode, payload_size
from gan_core.presets import preset

GRADIENT_IMAGES = 320  # one unit of averaged gradients
LOCAL_IMAGES = 100 * 128  # 100 local steps of 128 images
LIMIT = 3.5  # MB a round, either way
UPLINK = 10e6 / 8  # bytes a second of a usual student's line
WEIGHTS = (("weights, float32", "float32"), ("weights, float16", "float16"), ("weights, int4: what changed", CHANGE))


def run(options: Options) -> Section:
    plan = preset("dcgan")
    layout, weights = layout_of(plan), initial_state(plan).weights
    baseline = payload_size(layout, "float32")
    rows = []
    for codec in CODECS:
        rows.append(_row(f"contribution, {codec}", len(encode(weights, layout, codec)), baseline, codec))
    rows += [_row(label, payload_size(layout, codec), baseline, codec) for label, codec in WEIGHTS]
    return Section(
        name="bytes",
        title="DCGAN 64x64, what one worker sends and fetches",
        columns=("size", "at 10 Mbit/s", "1,000 images, gradient", "1,000 images, local steps"),
        ratio="size",
        rows=tuple(rows),
        notes=(
            f"Units of {GRADIENT_IMAGES} images for gradient, of {LOCAL_IMAGES:,} (100 steps of 128) for local steps.",
            "Weights are fetched once an iteration; the columns count one unit an iteration, the least favourable case.",
            "With weights_codec int4, a machine that doesn't have the last iteration's weights fetches float16.",
        ),
    )


def _row(label: str, size: int, baseline: int, codec: CodecName) -> Row:
    by_gradient, by_local_steps = size / GRADIENT_IMAGES * 1000, size / LOCAL_IMAGES * 1000
    return Row(
        label=label,
        cells=(
            f"{size / 1e6:.2f} MB",
            f"{size / UPLINK:.1f} s",
            f"{by_gradient / 1e6:.2f} MB",
            f"{by_local_steps / 1e6:.3f} MB",
        ),
        figures={"bytes": size, "gradient_per_1000_images": by_gradient, "local_steps_per_1000_images": by_local_steps},
        ratio=size / baseline,
        judgement=at_most(size / 1e6, LIMIT, "MB") if codec == "int4" else None,
    )
