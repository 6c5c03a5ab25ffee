"""Routes of the app's server for the stage: the player, the download module, the page template of a scene, and GIFs."""

from __future__ import annotations

from collections.abc import AsyncIterable
from functools import cache, partial
from gzip import compress
from hashlib import sha256
from io import BytesIO

import anyio.to_thread
import numpy as np
from PIL import Image
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from kernels import i18n
from kernels.i18n import tr, trn
from visuals import stage
from visuals.stage.standalone import standalone, takeaway

MAX_FRAMES, MAX_BYTES = 300, 40_000_000
MAX_FRAME_PIXELS, MAX_PIXELS = 4_000_000, 160_000_000  # of one frame, of all frames together
MS = (20, 5000)  # ms per frame, range
LAST_FRAME_EXTRA_MS = 1500  # ms that the last frame stays longer


class GifError(Exception):
    """Error for frames that make no GIF: an HTTP status and a sentence."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


def routes(base: str = "") -> list[Route]:
    """Returns the routes for st.App. base: server.baseUrlPath, which Streamlit puts only before its own routes."""
    prefix = f"/{base.strip('/')}".rstrip("/")
    return [
        Route(f"{prefix}/stage/player-{{version}}.js", _player),
        Route(f"{prefix}/stage/takeaway.js", partial(_file, takeaway, "text/javascript")),
        Route(f"{prefix}/stage/standalone.html", partial(_file, standalone, "text/html")),
        Route(f"{prefix}/stage/gif", _gif, methods=["POST"]),
    ]


async def _player(request: Request) -> Response:
    """Returns the player, which a browser may keep forever: another version has another URL. A browser whose page was
    sent before an update asks for the older player, which this server does not have."""
    if request.url.path.rpartition("/")[2] != stage.player_file():
        return PlainTextResponse(
            tr("This server has another version of the player. Load the page again."),
            404,
            headers={"Cache-Control": "no-store"},
        )
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable",
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    content = stage.player().encode()
    if "gzip" in request.headers.get("accept-encoding", ""):
        content, headers["Content-Encoding"] = _compressed_player(), "gzip"
    return Response(content, media_type="text/javascript", headers=headers)


@cache
def _compressed_player() -> bytes:
    return compress(stage.player().encode(), mtime=0)


async def _file(make_text, media_type: str, request: Request) -> Response:
    """Returns a text with an ETag of its content. The browser caches it but revalidates it each time, so that after an
    update the player never loads older parts."""
    with i18n.using(_language(request)):
        text = make_text().encode()
    tag = f'"{sha256(text).hexdigest()[:20]}"'
    headers = {"Cache-Control": "no-cache", "ETag": tag, "X-Content-Type-Options": "nosniff"}
    if tag in request.headers.get("if-none-match", ""):  # a list of tags, each maybe with W/ before it
        return Response(status_code=304, headers=headers)
    return Response(text, media_type=f"{media_type}; charset=utf-8", headers=headers)


def _language(request: Request) -> str:
    """Returns the language that the player shows; these routes belong to no session."""
    return i18n.best_language(request.query_params.get("lang"))


async def _gif(request: Request) -> Response:
    with i18n.using(_language(request)):
        return await _make_gif(request)


async def _make_gif(request: Request) -> Response:
    try:
        ms = _ms(request.query_params.get("ms", "120"))
        frames = split(await _body(request.stream()))
        gif = await anyio.to_thread.run_sync(animate, frames, ms, limiter=_one_at_a_time())
    except GifError as error:
        return PlainTextResponse(str(error), error.status)
    except ClientDisconnect:  # the browser cancelled the request
        return Response(status_code=400)
    return Response(gif, media_type="image/gif", headers={"Cache-Control": "no-store"})


_limiter: anyio.CapacityLimiter | None = None


def _one_at_a_time() -> anyio.CapacityLimiter:
    """Returns a limiter of one GIF at a time, because frames are large. Other GIFs wait; pages do not."""
    global _limiter
    _limiter = _limiter or anyio.CapacityLimiter(1)
    return _limiter


def _ms(text: str) -> int:
    low, high = MS
    if not (text.isascii() and text.isdigit() and len(text) < 6 and low <= int(text) <= high):
        raise GifError(400, tr("ms must be a whole number from {low} to {high}.", low=low, high=high))
    return int(text)


async def _body(chunks: AsyncIterable[bytes]) -> bytes:
    """Returns the whole body; GifError if it is larger than MAX_BYTES."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > MAX_BYTES:
            raise GifError(413, tr("The frames are larger than {limit} MB together.", limit=MAX_BYTES // 1_000_000))
    return bytes(body)


def split(body: bytes) -> list[bytes]:
    """Split the body into frames: before each is its length in 4 bytes, little endian."""
    frames, at = [], 0
    while at < len(body):
        length = int.from_bytes(body[at : at + 4], "little")
        frame = body[at + 4 : at + 4 + length]
        if len(frame) != length or not length:
            raise GifError(400, tr("Frame {number} is cut off.", number=len(frames) + 1))
        frames.append(frame)
        at += 4 + length
        if len(frames) > MAX_FRAMES:
            raise GifError(
                413, trn("A GIF has at most {n} frame here.", "A GIF has at most {n} frames here.", MAX_FRAMES)
            )
    if not frames:
        raise GifError(400, tr("A GIF needs a frame."))
    return frames


def animate(pngs: list[bytes], ms: int) -> bytes:
    """Returns a GIF of the frames that loops forever; the last frame stays LAST_FRAME_EXTRA_MS longer."""
    size = _open(pngs[0], 1).size
    if size[0] * size[1] * len(pngs) > MAX_PIXELS:
        raise GifError(
            413, tr("The frames are larger than {limit} megapixels together.", limit=MAX_PIXELS // 1_000_000)
        )
    sample = {len(pngs) * k // _SAMPLED for k in range(_SAMPLED)} | {len(pngs) - 1}
    palette = shared_palette([_packed(_frame(pngs[k], k + 1, size)) for k in sorted(sample)])
    nearest = Nearest(palette[:_TRANSPARENT])
    frames = []
    for number, png in enumerate(pngs, start=1):
        frames.append(Image.fromarray(nearest(_packed(_frame(png, number, size)))))
        frames[-1].putpalette(palette.tobytes())
    out = BytesIO()
    frames[0].save(
        out,
        "GIF",
        save_all=True,
        append_images=frames[1:],
        duration=[ms] * (len(frames) - 1) + [ms + LAST_FRAME_EXTRA_MS],
        loop=0,
        disposal=1,  # each frame stays under the next, which stores only changed pixels
        transparency=_TRANSPARENT,
        optimize=True,
    )
    return out.getvalue()


_SAMPLED = 12  # number of frames that the palette is made from
_TRANSPARENT = 255  # palette index of unchanged pixels, a colour of no frame
_EXACT = 191  # colours kept exactly; the rest of the palette is for the edges of letters


def shared_palette(frames: list[np.ndarray]) -> np.ndarray:
    """Returns a palette, uint8[256, 3]. The colours with most pixels are kept exactly, because flat areas show every
    shift. The others share the rest by median cut, each weighted by the root of its pixels to keep rare ones."""
    colours, counts = np.unique(np.concatenate([frame.ravel() for frame in frames]), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    exact, rest, weight = colours[order[:_EXACT]], colours[order[_EXACT:]], counts[order[_EXACT:]]
    palette = np.empty((256, 3), np.uint8)
    palette[:] = _rgb(exact[:1])  # unused entries repeat the first colour, so the palette adds no new one
    palette[: len(exact)] = _rgb(exact)
    if len(rest):
        pixels = np.repeat(_rgb(rest), np.ceil(np.sqrt(weight)).astype(int), axis=0)
        cut = Image.fromarray(pixels[None]).quantize(_TRANSPARENT - len(exact), Image.Quantize.MEDIANCUT)
        cut_colours = np.array(cut.getpalette(), np.uint8).reshape(-1, 3)[: _TRANSPARENT - len(exact)]
        palette[len(exact) : len(exact) + len(cut_colours)] = cut_colours
    return palette


class Nearest:
    """Mapping of colours to the nearest palette index. Pillow rounds colours before its search, which shifts flat
    areas; here each colour is searched once, unrounded, and cached."""

    def __init__(self, palette: np.ndarray):
        self.palette = palette.astype(np.int32)
        self.index = np.zeros(1 << 24, np.uint8)
        self.known = np.zeros(1 << 24, bool)

    def __call__(self, packed: np.ndarray) -> np.ndarray:
        new = np.unique(packed[~self.known[packed]])
        for chunk in np.array_split(new, len(new) // 4096 + 1):
            difference = _rgb(chunk).astype(np.int32)[:, None] - self.palette
            self.index[chunk] = (difference**2).sum(axis=2).argmin(axis=1)
        self.known[new] = True
        return self.index[packed]


def _packed(image: Image.Image) -> np.ndarray:
    """Returns uint32[height, width]: 0xRRGGBB."""
    r, g, b = (np.asarray(channel, np.uint32) for channel in image.split())
    return r << 16 | g << 8 | b


def _rgb(packed: np.ndarray) -> np.ndarray:
    return (packed[:, None] >> np.array([16, 8, 0], np.uint32) & 255).astype(np.uint8)


def _frame(png: bytes, number: int, size: tuple[int, int]) -> Image.Image:
    image = _open(png, number)
    if image.size != size:
        sizes = {"size": _times(image.size), "first": _times(size)}
        raise GifError(400, tr("Frame {number} is {size} pixels, the first {first}.", number=number, **sizes))
    try:
        return image.convert("RGB")
    except Exception as error:  # Pillow raises errors of many types for damaged bytes
        raise GifError(400, tr("Frame {number} is a damaged PNG.", number=number)) from error


def _open(png: bytes, number: int) -> Image.Image:
    """Open a frame: its size is known, no pixel is decoded yet. GifError if it is no PNG or too large."""
    try:
        image = Image.open(BytesIO(png), formats=["PNG"])
    except Exception as error:
        raise GifError(400, tr("Frame {number} is no PNG.", number=number)) from error
    if image.width * image.height > MAX_FRAME_PIXELS:
        limit = MAX_FRAME_PIXELS // 1_000_000
        raise GifError(413, tr("Frame {number} is larger than {limit} megapixels.", number=number, limit=limit))
    return image


def _times(size: tuple[int, int]) -> str:
    return f"{size[0]} × {size[1]}"
