"""The server's routes for the stage, called over ASGI, and GIFs decoded again."""

from __future__ import annotations

import asyncio
import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image, ImageDraw
from starlette.applications import Starlette

from tests.helpers.offenders import every
from visuals import stage
from visuals.stage import routes as stage_routes
from visuals.stage.routes import LAST_FRAME_EXTRA_MS, MAX_BYTES, MAX_FRAMES, animate, routes
from visuals.stage.standalone import SCENE_PLACEHOLDER, takeaway

SIZE = (64, 40)
COLOURS = ("#0071b1", "#9e5d00", "#007c58", "#9a4f86", "#f7f8fa", "#1d2330")


def run_in_thread(coroutine):
    """Run a coroutine in its own thread, because the browser tests leave a loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def request(path, body=b"", method="GET", headers=(), base="", chunk=65536, raw=False):
    """Returns (status, headers, text or bytes) of a request."""
    parts = [body[k : k + chunk] for k in range(0, len(body), chunk)] or [b""]
    sent = []

    async def receive():
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(k.lower().encode(), v.encode()) for k, v in headers],
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "root_path": "",
    }
    run_in_thread(Starlette(routes=routes(base))(scope, receive, send))
    response_headers = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    content = b"".join(m.get("body", b"") for m in sent[1:])
    return (
        sent[0]["status"],
        response_headers,
        content if raw or response_headers.get("content-type", "").startswith("image") else content.decode(),
    )


def request_gif(frames, ms="120"):
    body = b"".join(len(frame).to_bytes(4, "little") + frame for frame in frames)
    return request(f"/stage/gif?ms={ms}", body, "POST")


def png(image):
    out = BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def picture(k, size=SIZE):
    image = Image.new("RGB", size, "#f7f8fa")
    draw = ImageDraw.Draw(image)
    for n, colour in enumerate(COLOURS):
        draw.rectangle((n * 10, 4, n * 10 + 8, 20), fill=colour)
    draw.rectangle((k, 24, k + 5, 30), fill="#D55E00")
    draw.text((2, 28), str(k), fill="#1d2330")
    return image


# -- files ---------------------------------------------------------------------------------------
def test_the_module_has_no_imports_and_one_export():
    status, headers, text = request("/stage/takeaway.js")
    assert status == 200 and text == takeaway()
    assert headers["content-type"] == "text/javascript; charset=utf-8"
    assert "import " not in text and text.count("export") == 1


PLAYER = f"/stage/{stage.player_file()}"


def test_the_player_is_kept_forever_under_the_hash_of_its_content():
    status, headers, text = request(PLAYER)
    assert status == 200 and text == stage.player()
    assert headers["content-type"] == "text/javascript; charset=utf-8"
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert text.startswith(stage.script()) and json.dumps(stage.html()) in text


def test_the_player_is_sent_compressed_once_compressed(monkeypatch):
    for _ in range(2):
        _, headers, content = request(PLAYER, headers=[("Accept-Encoding", "br, gzip")], raw=True)
        assert headers["content-encoding"] == "gzip" and headers["vary"] == "Accept-Encoding"
        assert gzip.decompress(content).decode() == stage.player()
        monkeypatch.setattr(stage_routes, "compress", None)


def test_another_version_of_the_player_is_refused_in_words():
    status, headers, text = request("/stage/player-0123456789abcdef.js")
    assert (status, headers["cache-control"]) == (404, "no-store")
    assert text == "This server has another version of the player. Load the page again."


def test_the_template_has_one_placeholder_before_all_code():
    status, headers, text = request("/stage/standalone.html")
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
    assert (
        text.index(f">{SCENE_PLACEHOLDER}</script>") == text.index(SCENE_PLACEHOLDER) - 1 < text.index('type="module"')
    )


def test_files_are_cached_and_revalidated():
    _, headers, _ = request("/stage/takeaway.js")
    assert headers["cache-control"] == "no-cache"
    for known in (headers["etag"], f'"other", W/{headers["etag"]}'):
        status, _, text = request("/stage/takeaway.js", headers=[("If-None-Match", known)])
        assert (status, text) == (304, "")
    assert request("/stage/takeaway.js", headers=[("If-None-Match", '"other"')])[0] == 200


@pytest.mark.parametrize("base", ["talk", "/talk/", "a/b"])
def test_routes_under_a_base_path(base):
    assert request(f"/{base.strip('/')}{PLAYER}", base=base)[2] == stage.player()
    assert request(f"/{base.strip('/')}/stage/takeaway.js", base=base)[0] == 200
    assert request("/stage/takeaway.js", base=base)[0] == 404


def test_wrong_methods_are_rejected():
    assert request("/stage/gif")[0] == 405
    assert request("/stage/takeaway.js", method="POST")[0] == 405


# -- GIFs ----------------------------------------------------------------------------------------
def test_a_gif_has_every_frame_with_its_time_and_size():
    status, headers, data = request_gif([png(picture(k)) for k in range(12)], ms="130")
    assert status == 200 and headers["content-type"] == "image/gif"
    with Image.open(BytesIO(data)) as image:
        assert (image.format, image.size, image.n_frames, image.info["loop"]) == ("GIF", SIZE, 12, 0)
        for k in range(12):
            image.seek(k)
            assert image.info["duration"] == (130 if k < 11 else 130 + LAST_FRAME_EXTRA_MS)
            assert np.array_equal(np.asarray(image.convert("RGB")), np.asarray(picture(k))), k


def test_one_frame_is_a_gif_too():
    _, _, data = request_gif([png(picture(3))])
    with Image.open(BytesIO(data)) as image:
        assert (image.n_frames, image.size) == (1, SIZE)


def test_too_many_colours_leave_flat_areas_exact():
    frames = []
    for k in range(3):
        noise = np.random.default_rng(k).integers(0, 256, (120, 120, 3), np.uint8)
        noise[:80] = (0, 113, 177)
        noise[40:80, :60] = (251 + k, 250, 249)
        frames.append(Image.fromarray(noise))
    with Image.open(BytesIO(animate([png(frame) for frame in frames], 100))) as image:
        for k, frame in enumerate(frames):
            image.seek(k)
            decoded = np.asarray(image.convert("RGB"), int)
            assert np.array_equal(decoded[:80], np.asarray(frame)[:80])
            assert np.abs(decoded - np.asarray(frame, int)).mean() < 30  # noise gets the nearest colours of the palette


def test_transparent_and_grey_pngs_are_accepted():
    frames = [Image.new("LA", SIZE, (200, 255)), Image.new("RGBA", SIZE, "#0071b1ff"), Image.new("1", SIZE, 1)]
    with Image.open(BytesIO(request_gif([png(frame) for frame in frames])[2])) as image:
        assert image.n_frames == 3


def damaged():
    whole = png(Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 64, 3), np.uint8)))
    return whole[:200] + bytes(len(whole) - 200)


def jpeg():
    out = BytesIO()
    picture(0).save(out, "JPEG")
    return out.getvalue()


@every(
    ("frames", "status", "sentence"),
    [
        ([], 400, "A GIF needs a frame."),
        ([b"no picture"], 400, "Frame 1 is no PNG."),
        ([png(picture(0)), jpeg()], 400, "Frame 2 is no PNG."),
        ([png(picture(0)), damaged()], 400, "Frame 2 is a damaged PNG."),
        ([png(picture(0)), b""], 400, "Frame 2 is cut off."),
        ([png(picture(0)), png(picture(1, (64, 41)))], 400, "Frame 2 is 64 × 41 pixels, the first 64 × 40."),
        ([png(Image.new("1", (2001, 2000)))], 413, "Frame 1 is larger than 4 megapixels."),
        ([png(Image.new("1", (2000, 2000)))] * 41, 413, "The frames are larger than 160 megapixels together."),
        ([png(Image.new("1", (1, 1)))] * (MAX_FRAMES + 1), 413, "A GIF has at most 300 frames here."),
    ],
)
def test_invalid_frames_are_rejected_with_a_sentence(frames, status, sentence):
    response = request_gif(frames)
    assert (response[0], response[2]) == (status, sentence)
    assert response[1]["content-type"].startswith("text/plain")


def test_a_body_cut_off_or_too_large():
    frame = png(picture(0))
    body = len(frame).to_bytes(4, "little") + frame
    for cut in (body[:-1], body[:3], body + b"\1"):
        assert request("/stage/gif", cut, "POST")[0] == 400
    status, _, text = request("/stage/gif", bytes(MAX_BYTES + 1), "POST", chunk=10_000_000)
    assert (status, text) == (413, "The frames are larger than 40 MB together.")


def test_ms_has_a_range():
    frame = png(picture(0))
    for ms in ("19", "5001", "", "-5", "1e3", "120.5", "x", "٣٠٠", "9" * 5000):
        status, _, text = request_gif([frame], ms=quote(ms))
        assert (status, text) == (400, "ms must be a whole number from 20 to 5000."), ms
    for ms in ("20", "5000"):
        assert request_gif([frame, png(picture(1))], ms=ms)[0] == 200, ms


def test_gifs_are_made_one_at_a_time_in_a_thread(monkeypatch):
    import threading

    active, events = [], []

    def slow(frames, ms):
        active.append(threading.current_thread())
        events.append(len(active))
        threading.Event().wait(0.05)
        active.pop()
        return b"GIF89a"

    monkeypatch.setattr(stage_routes, "animate", slow)
    monkeypatch.setattr(stage_routes, "_limiter", None)

    async def three():
        app, frame, loop = Starlette(routes=routes()), png(picture(0)), threading.current_thread()
        body = len(frame).to_bytes(4, "little") + frame

        async def one():
            async def receive():
                return {"type": "http.request", "body": body, "more_body": False}

            async def send(message):
                events.append(threading.current_thread() is loop)

            scope = {"type": "http", "method": "POST", "path": "/stage/gif", "query_string": b"", "headers": []}
            await app(scope, receive, send)

        await asyncio.gather(one(), one(), one())

    run_in_thread(three())
    assert [n for n in events if n is not True] == [1, 1, 1]
