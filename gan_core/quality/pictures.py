"""Pictures for people: sample grids, and their timeline as an animation. Files appear whole or not at all."""

import base64
import io
from collections.abc import Sequence

from PIL import Image, ImageDraw
from torch import Tensor

from gan_core.data.images import grid
from gan_core.networks.drawing import draw, fixed_noise
from gan_core.plan import Plan

LARGEST_INLINE = 150_000  # bytes of a picture inside a page
FRAMES = 60  # at most, in a timeline: 6 s at 10 frames a second
LARGEST = 384  # pixels a side of a timeline; keeps it below 2 MB


def sample_grid(plan: Plan, average: Tensor, columns: int = 8) -> bytes:
    """PNG of columns² images from the training's fixed noise; small images are enlarged so that people can see them."""
    picture = grid(draw(plan, average, fixed_noise(plan, columns**2)), columns)
    if plan.image_size < 64:
        picture = picture.resize((picture.width * 2, picture.height * 2), Image.Resampling.NEAREST)
    return png(picture)


def png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def data_uri(picture: bytes) -> str:
    """A PNG as text that an `<img>` shows; a large one becomes a JPEG, so that pages with it stay light."""
    kind = "png"
    if len(picture) > LARGEST_INLINE:
        buffer = io.BytesIO()
        Image.open(io.BytesIO(picture)).convert("RGB").save(buffer, "JPEG", quality=85)
        kind, picture = "jpeg", buffer.getvalue()
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def timeline(grids: Sequence[tuple[int, bytes]]) -> bytes:
    """Animated GIF of (iteration, PNG), the oldest first; the last frame stays a while."""
    step = max(1, -(-len(grids) // FRAMES))
    chosen = [*grids[:-1:step], grids[-1]]
    frames = []
    for iteration, data in chosen:
        picture = Image.open(io.BytesIO(data)).convert("RGB")
        if picture.width > LARGEST:
            picture = picture.resize(
                (LARGEST, round(picture.height * LARGEST / picture.width)), Image.Resampling.LANCZOS
            )
        framed = Image.new("RGB", (picture.width, picture.height + 18), "white")
        framed.paste(picture, (0, 18))
        ImageDraw.Draw(framed).text((4, 3), f"iteration {iteration}", fill="black")
        frames.append(framed.quantize(64))
    buffer = io.BytesIO()
    frames[0].save(
        buffer,
        "GIF",
        save_all=True,
        append_images=frames[1:],
        loop=0,
        optimize=True,
        duration=[100] * (len(frames) - 1) + [3000],
    )
    return buffer.getvalue()
