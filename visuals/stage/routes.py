"""What the stage asks the app's server for: what takes a scene away, the page it is put in, and GIFs."""

from __future__ import annotations

from collections.abc import AsyncIterable
from functools import partial
from hashlib import sha256
from io import BytesIO

import anyio.to_thread
import numpy as np
from PIL import Image
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from visuals.stage.standalone import standalone, takeaway

MOST_FRAMES, MOST_BYTES = 300, 40_000_000
MOST_FRAME_PIXELS, MOST_PIXELS = 4_000_000, 160_000_000  # of one frame, of all together
MS = (20, 5000)  # a frame
HELD = 1500  # ms that the last frame stands longer


class Refused(Exception):
    """What was sent makes no GIF: the status and the sentence that says why."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


def routes(base: str = "") -> list[Route]:
    """For st.App. base: server.baseUrlPath, which Streamlit puts before its own routes alone."""
    home = f"/{base.strip('/')}".rstrip("/")
    return [
        Route(f"{home}/stage/takeaway.js", partial(_file, takeaway, "text/javascript")),
        Route(f"{home}/stage/standalone.html", partial(_file, standalone, "text/html")),
        Route(f"{home}/stage/gif", _gif, methods=["POST"]),
    ]


async def _file(make, media_type: str, request: Request) -> Response:
    """A text under a tag of its content: kept by the browser, but asked about each time, so that after an
    update no player meets parts older than itself."""
    text = make().encode()
    tag = f'"{sha256(text).hexdigest()[:20]}"'
    headers = {"Cache-Control": "no-cache", "ETag": tag, "X-Content-Type-Options": "nosniff"}
    if tag in request.headers.get("if-none-match", ""):  # a list, each maybe behind W/
        return Response(status_code=304, headers=headers)
    return Response(text, media_type=f"{media_type}; charset=utf-8", headers=headers)


async def _gif(request: Request) -> Response:
    try:
        ms = _ms(request.query_params.get("ms", "120"))
        frames = split(await _body(request.stream()))
        made = await anyio.to_thread.run_sync(animate, frames, ms, limiter=_one_at_a_time())
    except Refused as fault:
        return PlainTextResponse(str(fault), fault.status)
    except ClientDisconnect:  # the reader thought better of it
        return Response(status_code=400)
    return Response(made, media_type="image/gif", headers={"Cache-Control": "no-store"})


_limiter: anyio.CapacityLimiter | None = None


def _one_at_a_time() -> anyio.CapacityLimiter:
    """One GIF is made at a time, for its frames are large; the others wait, and no page waits for them."""
    global _limiter
    _limiter = _limiter or anyio.CapacityLimiter(1)
    return _limiter


def _ms(text: str) -> int:
    low, high = MS
    if not (text.isascii() and text.isdigit() and len(text) < 6 and low <= int(text) <= high):
        raise Refused(400, f"ms must be a whole number from {low} to {high}")
    return int(text)


async def _body(chunks: AsyncIterable[bytes]) -> bytes:
    """All of it, but never more than may be."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > MOST_BYTES:
            raise Refused(413, f"The frames are larger than {MOST_BYTES // 1_000_000} MB together")
    return bytes(body)


def split(body: bytes) -> list[bytes]:
    """The frames: each comes after its length in 4 bytes, little endian."""
    frames, at = [], 0
    while at < len(body):
        length = int.from_bytes(body[at : at + 4], "little")
        frame = body[at + 4 : at + 4 + length]
        if len(frame) != length or not length:
            raise Refused(400, f"Frame {len(frames) + 1} is cut off")
        frames.append(frame)
        at += 4 + length
        if len(frames) > MOST_FRAMES:
            raise Refused(413, f"A GIF has at most {MOST_FRAMES} frames here")
    if not frames:
        raise Refused(400, "A GIF needs a frame")
    return frames


def animate(pngs: list[bytes], ms: int) -> bytes:
    """A GIF of the frames, over and over; the last one stands longer."""
    size = _opened(pngs[0], 1).size
    if size[0] * size[1] * len(pngs) > MOST_PIXELS:
        raise Refused(413, f"The frames are larger than {MOST_PIXELS // 1_000_000} megapixels together")
    sample = {len(pngs) * k // _SAMPLED for k in range(_SAMPLED)} | {len(pngs) - 1}
    palette = shared_palette([_packed(_frame(pngs[k], k + 1, size)) for k in sorted(sample)])
    nearest = Nearest(palette[:_CLEAR])
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
        duration=[ms] * (len(frames) - 1) + [ms + HELD],
        loop=0,
        disposal=1,  # each frame stays under the next, which holds only what changed
        transparency=_CLEAR,
        optimize=True,
    )
    return out.getvalue()


_SAMPLED = 12  # frames that the palette is made from
_CLEAR = 255  # index of what did not change, a colour of no frame
_EXACT = 191  # colours kept as they are; the rest of the palette is for the rims of letters


def shared_palette(frames: list[np.ndarray]) -> np.ndarray:
    """uint8[256, 3]: the colours that fill most are exactly themselves, for flat fills show every shift; the
    others share what is left by median cut, each counted by the root of its pixels so that rare ones last."""
    colours, counts = np.unique(np.concatenate([frame.ravel() for frame in frames]), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    exact, rest, weight = colours[order[:_EXACT]], colours[order[_EXACT:]], counts[order[_EXACT:]]
    palette = np.empty((256, 3), np.uint8)
    palette[:] = _rgb(exact[:1])  # what is left over repeats the first: a palette brings no colour of its own
    palette[: len(exact)] = _rgb(exact)
    if len(rest):
        line = np.repeat(_rgb(rest), np.ceil(np.sqrt(weight)).astype(int), axis=0)
        cut = Image.fromarray(line[None]).quantize(_CLEAR - len(exact), Image.Quantize.MEDIANCUT)
        found = np.array(cut.getpalette(), np.uint8).reshape(-1, 3)[: _CLEAR - len(exact)]
        palette[len(exact) : len(exact) + len(found)] = found
    return palette


class Nearest:
    """Colours to indices of a palette. Pillow rounds colours before it looks for the nearest, which moves flat
    fills; here each colour is looked for once, as it is, and then known."""

    def __init__(self, palette: np.ndarray):
        self.palette = palette.astype(np.int32)
        self.index = np.zeros(1 << 24, np.uint8)
        self.known = np.zeros(1 << 24, bool)

    def __call__(self, packed: np.ndarray) -> np.ndarray:
        new = np.unique(packed[~self.known[packed]])
        for some in np.array_split(new, len(new) // 4096 + 1):
            apart = _rgb(some).astype(np.int32)[:, None] - self.palette
            self.index[some] = (apart**2).sum(axis=2).argmin(axis=1)
        self.known[new] = True
        return self.index[packed]


def _packed(image: Image.Image) -> np.ndarray:
    """uint32[height, width]: 0xRRGGBB."""
    r, g, b = (np.asarray(channel, np.uint32) for channel in image.split())
    return r << 16 | g << 8 | b


def _rgb(packed: np.ndarray) -> np.ndarray:
    return (packed[:, None] >> np.array([16, 8, 0], np.uint32) & 255).astype(np.uint8)


def _frame(png: bytes, number: int, size: tuple[int, int]) -> Image.Image:
    image = _opened(png, number)
    if image.size != size:
        raise Refused(400, f"Frame {number} is {_times(image.size)} pixels, the first {_times(size)}")
    try:
        return image.convert("RGB")
    except Exception as fault:  # whatever Pillow makes of damaged bytes
        raise Refused(400, f"Frame {number} is a damaged PNG") from fault


def _opened(png: bytes, number: int) -> Image.Image:
    """The frame with its size known and not a pixel unpacked."""
    try:
        image = Image.open(BytesIO(png), formats=["PNG"])
    except Exception as fault:
        raise Refused(400, f"Frame {number} is no PNG") from fault
    if image.width * image.height > MOST_FRAME_PIXELS:
        raise Refused(413, f"Frame {number} is larger than {MOST_FRAME_PIXELS // 1_000_000} megapixels")
    return image


def _times(size: tuple[int, int]) -> str:
    return f"{size[0]} × {size[1]}"
