"""Pictures to convolve and filters to convolve them with, generated at any size.

Values are in 0 .. 9. They are whole numbers if the picture is at most 16 x 16, or one row of at most 64 samples, so that
sums are easy to follow. A picture has at most three distinct planes: channel c of C is plane c mod 3.
"""

from __future__ import annotations

import base64
import io
import itertools
import re
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from kernels.i18n import decimal, tr
from visuals import units

PICTURES = ("digit", "checkerboard", "gradient", "numbers", "random")
FILTERS = ("identity", "blur", "sharpen", "sobel-x", "sobel-y", "random")
CUSTOM, UPLOAD = "custom", "upload"
PLANES = 3
MAX_VALUE = 9.0  # the largest value of a picture
MAX_WHOLE_SIDE, MAX_WHOLE_ROW = (
    16,
    64,
)  # up to this height and width values are whole numbers; of a single row or column

ROW = 0.3  # the height of the row that a picture of one row shows
MAX_BYTES, MAX_PIXELS = 10 * 10**6, 40 * 10**6
MAX_TAP = 1000
MAX_SEED = 9999


class PictureError(ValueError):
    """A picture or filter that breaks a rule. The message, in whole sentences, names the rule and the limit."""


# -- pictures ------------------------------------------------------------------------------------
@lru_cache(maxsize=16)
def planes(name: str, H: int, W: int, C: int, n: int = 0, seed: int = 0) -> np.ndarray:
    """Returns float32[min(C, 3), H, W], read-only: the distinct planes of image n of the picture `name`."""
    count = min(C, PLANES)
    if name == "numbers":
        out = ((np.arange(count * H * W) + n) % 10).reshape(count, H, W)
    elif name == "random":
        out = np.random.default_rng([seed, n]).integers(0, 10, (count, H, W))
    elif name in _GENERATORS:
        grey = _row(_GENERATORS[name], H, W) if 1 in (H, W) else _GENERATORS[name](H, W)
        out = _coloured(np.roll(grey, n * max(1, min(H, W) // 8), axis=(0, 1)), count)
    else:
        raise PictureError(
            tr("The picture must be one of {names}; got {name}.", names=", ".join(PICTURES), name=_quoted(name))
        )
    return _finish(out)


def images(first: Callable[[int], np.ndarray], N: int, C: int) -> np.ndarray:
    """Returns float32[N, C, H, W] from the planes that `first(n)` returns; see `planes`."""
    return np.stack([first(n)[np.arange(C) % PLANES] for n in range(N)])


def _finish(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, dtype=np.float32)
    if max(values.shape[-2:]) <= (MAX_WHOLE_ROW if 1 in values.shape[-2:] else MAX_WHOLE_SIDE):
        values = np.rint(values)
    values.setflags(write=False)
    return values


def _coloured(grey: np.ndarray, count: int) -> np.ndarray:
    """Returns up to three planes that look different: the grey picture, the same lit from the left, its negative
    at half strength."""
    lit = grey * np.linspace(1.0, 0.3, grey.shape[1])
    return np.stack([grey, lit, (MAX_VALUE - grey) * 0.5][:count])


def _grid(H: int, W: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the centres of the pixels as (y, x). The largest centred square of the picture spans 0 .. 1."""
    side = min(H, W)
    y, x = np.mgrid[:H, :W] + 0.5
    return (y - H / 2) / side + 0.5, (x - W / 2) / side + 0.5


def _digit(H: int, W: int) -> np.ndarray:
    """Draws the digit two with a pen: a round head, a long diagonal, a foot."""
    y, x = _grid(H, W)
    angle = np.radians(np.linspace(200, 400, 16))
    head = np.stack([0.50 + 0.23 * np.cos(angle), 0.35 + 0.20 * np.sin(angle)], axis=1)
    points = np.concatenate([head, [[0.27, 0.86], [0.77, 0.84]]])
    distance = np.full((H, W), np.inf)
    for (ax, ay), (bx, by) in itertools.pairwise(points):
        dx, dy = bx - ax, by - ay
        t = np.clip(((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy), 0, 1)
        distance = np.minimum(distance, np.hypot(x - ax - t * dx, y - ay - t * dy))
    pixel = 1 / min(H, W)
    half_width = max(0.06, 0.6 * pixel)
    return MAX_VALUE * np.clip((half_width - distance) / pixel + 0.5, 0, 1)


def _checkerboard(H: int, W: int) -> np.ndarray:
    tile = max(1, min(H, W) // 4)
    y, x = np.indices((H, W)) // tile
    return MAX_VALUE * ((y + x) % 2 == 0)


def _gradient(H: int, W: int) -> np.ndarray:
    """Draws a ramp from left to right. A disc in it has the opposite ramp, which gives the picture an edge."""
    y, x = _grid(H, W)
    ramp = MAX_VALUE * np.broadcast_to((np.arange(W) + 0.5) / W, (H, W))
    return np.where(np.hypot(y - 0.5, x - 0.5) < 0.3, MAX_VALUE - ramp, ramp)


def _row(draw: Callable[[int, int], np.ndarray], H: int, W: int) -> np.ndarray:
    """Returns a picture of one row or one column: the row through the head of the digit, or as high in another picture."""
    length = max(H, W)
    return draw(length, length)[int(ROW * length)].reshape(H, W)


_GENERATORS = {"digit": _digit, "checkerboard": _checkerboard, "gradient": _gradient}


# -- an uploaded picture -------------------------------------------------------------------------
_OTHER_FORMATS = {b"GIF8": "GIF", b"BM": "BMP", b"II*\0": "TIFF", b"MM\0*": "TIFF", b"RIFF": "WebP", b"%PDF": "PDF"}


def upload_planes(data: bytes, H: int, W: int, C: int) -> np.ndarray:
    """Returns float32[min(C, 3), H, W], values 0 .. 9, of a PNG or JPEG. The middle is cut to the shape's
    proportions, then averaged down (or enlarged) to H x W. Grey for C = 1, else red, green, blue.

    Raises PictureError. The size is read from the header before any pixel is decoded.
    """
    from PIL import Image, ImageOps

    if len(data) > MAX_BYTES:
        raise PictureError(
            tr(
                "A picture may have at most {limit}. This one has {size}.",
                limit=units.bytes_(MAX_BYTES),
                size=units.bytes_(len(data)),
            )
        )
    if not data.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")):
        format_name = next((name for magic, name in _OTHER_FORMATS.items() if data.startswith(magic)), "")
        raise PictureError(
            tr("A picture must be PNG or JPEG. This file is a {format}.", format=format_name)
            if format_name
            else tr("A picture must be PNG or JPEG. This file is neither.")
        )
    damaged = tr("The picture cannot be read. The file is incomplete or damaged.")
    try:
        image = Image.open(io.BytesIO(data), formats=("PNG", "JPEG"))
        width, height = image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise PictureError(
            tr("A picture may have at most {limit} megapixels. This one has far more.", limit=MAX_PIXELS // 10**6)
        ) from None
    except Exception:  # Pillow raises many kinds on hostile headers: all are handled in the same way
        raise PictureError(damaged) from None
    if width * height > MAX_PIXELS:
        raise PictureError(
            tr(
                "A picture may have at most {limit} megapixels. This one has {size} ({width} × {height}).",
                limit=MAX_PIXELS // 10**6,
                size=decimal(f"{width * height / 1e6:,.0f}"),
                width=width,
                height=height,
            )
        )
    try:
        image.draft("RGB", (2 * W, 2 * H))  # JPEG: decode no finer than needed
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I"):  # 16 bits a pixel
            image = Image.fromarray((np.asarray(image, dtype=np.float64) / 257).astype(np.uint8))
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
        image = ImageOps.fit(image, (W, H), Image.Resampling.BOX)
        pixels = np.asarray(image.convert("L"))[None] if C == 1 else np.moveaxis(np.asarray(image), 2, 0)
    except Exception:
        raise PictureError(damaged) from None
    return _finish(pixels[:C] * (MAX_VALUE / 255))


# -- filters -------------------------------------------------------------------------------------
def filter_names(K: int, first: str) -> list[str]:
    """Returns the name of each filter 0 .. K-1: the chosen one, the others of FILTERS in order, then random ones."""
    if first == CUSTOM:
        order = (CUSTOM, *FILTERS)
    else:
        start = FILTERS.index(first)
        order = FILTERS[start:] + FILTERS[:start]
    return [order[k] if k < len(order) else "random" for k in range(K)]


def filters(K: int, C: int, R: int, S: int, first: str, seed: int = 0, custom: np.ndarray | None = None) -> np.ndarray:
    """Returns float32[K, C, R, S]: K filters, starting with `first`, with the same taps on every channel.
    `custom` is float[R, S] and is read if `first` is "custom"."""
    all_taps = [
        np.asarray(custom) if name == CUSTOM else taps(name, R, S, seed, k)
        for k, name in enumerate(filter_names(K, first))
    ]
    return np.repeat(np.stack(all_taps)[:, None], C, axis=1).astype(np.float32)


def taps(name: str, R: int, S: int, seed: int = 0, k: int = 0) -> np.ndarray:
    """Returns float64[R, S], one filter. An axis of one tap has no slope: there a Sobel filter only smooths, and
    1 x 1 copies."""
    centre = (R - 1) // 2, (S - 1) // 2
    if name == "random":
        return np.random.default_rng([seed, k]).integers(-2, 3, (R, S)).astype(float)
    if name == "blur":
        return np.full((R, S), 1 / (R * S))
    if name == "sobel-x":
        return np.outer(_binomial(R), _slope(S))
    if name == "sobel-y":
        return np.outer(_slope(R), _binomial(S))
    out = np.zeros((R, S))
    if name == "sharpen":
        out[centre[0], :] = out[:, centre[1]] = -1
        out[centre] = R + S - 1  # so that all taps sum to one
    elif name == "identity":
        out[centre] = 1
    else:
        raise PictureError(
            tr(
                "The filter must be one of {names}; got {name}.",
                names=", ".join((*FILTERS, CUSTOM)),
                name=_quoted(name),
            )
        )
    return out


def _binomial(taps: int) -> np.ndarray:
    out = np.ones(1)
    for _ in range(taps - 1):
        out = np.convolve(out, [1, 1])
    return out


def _slope(taps: int) -> np.ndarray:
    """Returns right minus left, smoothed: -1 0 1, then -1 -2 0 2 1, ..."""
    if taps == 1:
        return np.ones(1)
    return np.array([-1.0, 1.0]) if taps == 2 else np.convolve(_binomial(taps - 2), [-1, 0, 1])


def parse_taps(text: str, R: int, S: int) -> np.ndarray:
    """Parse numbers separated by spaces, commas, semicolons or lines, row by row, into float64[R, S]."""
    tokens = [token for token in re.split(r"[\s,;]+", text) if token]
    if len(tokens) != R * S:
        raise PictureError(
            tr(
                "A custom filter needs R × S = {rows} × {columns} = {count} numbers, got {got}.",
                rows=R,
                columns=S,
                count=R * S,
                got=len(tokens),
            )
        )
    try:
        values = np.array([float(token) for token in tokens])
    except ValueError:
        bad = next(token for token in tokens if not _is_number(token))
        raise PictureError(tr("Each tap must be a number, got {text}.", text=_quoted(bad))) from None
    if not (np.abs(values) <= MAX_TAP).all():  # nan fails too
        raise PictureError(tr("Each tap must be between −{limit} and {limit}.", limit=decimal(f"{MAX_TAP:,}")))
    return values.reshape(R, S)


def taps_text(values: np.ndarray) -> str:
    """Returns the taps as text that `parse_taps` reads: one line per row."""
    return "\n".join(" ".join(f"{v:g}" for v in row) for row in values)


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True


def _quoted(text: object) -> str:
    """Returns text from outside in the form that a message may contain: short, quoted."""
    text = str(text)
    return repr(text if len(text) <= 24 else text[:23] + "…")


# -- as small images -----------------------------------------------------------------------------
def picture_rgb(values: np.ndarray, colour: str, ground: str, ink: str) -> np.ndarray:
    """Returns uint8[H, W, 3]: values [H, W] in shades of `colour` (all "#rrggbb"), one pixel per value; the page
    enlarges them.

    Without negative values the shades go from the ground to the full colour. With negative values, zero is in the
    middle, negative values go to the ground, and positive ones go past the colour towards the ink.
    """
    values = np.asarray(values, dtype=np.float64)
    low, full = _mix(ground, colour, 0.10), _rgb(colour)
    top = np.abs(values).max() or 1.0
    if values.min() < 0:
        stops = np.stack([low, _mix(ground, colour, 0.5), _mix(colour, ink, 0.3)])
        levels, stop_levels = values / top, [-1, 0, 1]
    else:
        stops, levels, stop_levels = np.stack([low, full]), values / top, [0, 1]
    rgb = np.stack([np.interp(levels, stop_levels, stops[:, c]) for c in range(3)], axis=-1)
    return np.rint(rgb).astype(np.uint8)


def data_uri(rgb: np.ndarray) -> str:
    """Returns uint8[h, w, 3] as a PNG in a data URI. It needs no library, because a browser's Python has none for images."""
    height, width, _ = rgb.shape
    rows = np.pad(rgb.reshape(height, -1), ((0, 0), (1, 0)))  # each begins with its filter: 0, none
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),  # 8 bits, red, green and blue
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    png = b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _rgb(colour: str) -> np.ndarray:
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], dtype=float)


def _mix(a: str, b: str, share: float) -> np.ndarray:
    return _rgb(a) * (1 - share) + _rgb(b) * share
