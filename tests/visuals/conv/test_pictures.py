import base64
import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.helpers.offenders import every
from visuals.conv import pictures
from visuals.conv.pictures import CUSTOM, FILTERS, PICTURES, PictureError
from visuals.palette import LIGHT

side = st.integers(1, 40)


@settings(max_examples=25)
@given(st.sampled_from(PICTURES), side, side, st.integers(1, 5), st.integers(0, 3), st.integers(0, 9))
def test_every_picture_at_every_size(name, H, W, C, n, seed):
    planes = pictures.planes(name, H, W, C, n, seed)
    assert planes.shape == (min(C, 3), H, W) and planes.dtype == np.float32
    assert np.isfinite(planes).all() and planes.min() >= 0 and planes.max() <= 9
    if max(H, W) <= 16:
        assert (planes == np.rint(planes)).all()


@pytest.mark.parametrize("name", ["digit", "checkerboard", "gradient"])
def test_a_picture_of_one_row_is_a_signal_of_whole_numbers(name):
    row, column = pictures.planes(name, 1, 64, 1)[0], pictures.planes(name, 64, 1, 1)[0]
    assert row.shape == (1, 64) and (column == row.T).all() and (row == np.rint(row)).all()
    rises = (np.diff(row[0]) > 2).sum()
    assert rises >= 2 and row.max() >= 8  # it rises more than once: filters of edges have something to find


@pytest.mark.parametrize("name", PICTURES)
def test_planes_and_images_differ(name):
    first, second = (pictures.planes(name, 8, 8, 3, n) for n in (0, 1))
    assert len({plane.tobytes() for plane in (*first, *second)}) == 6


def test_numbers_count_row_by_row_and_channel_by_channel():
    planes = pictures.planes("numbers", 3, 3, 3)
    assert planes.ravel().tolist() == [i % 10 for i in range(27)]


@pytest.mark.parametrize("size", [8, 12, 28, 64])
def test_the_digit_has_ink_in_the_middle_of_every_stroke(size):
    digit = pictures.planes("digit", size, size, 1)[0]
    middle, foot = digit[:, size * 3 // 8 : size * 5 // 8].max(axis=1), digit[size * 3 // 4 :]
    assert middle[: size // 2].max() >= 4.5 and foot.max() >= 4.5
    assert digit[:, 0].max() < 4.5 and digit.mean() < 4.5


def test_images_repeat_planes_over_the_channels():
    x = pictures.images(lambda n: pictures.planes("digit", 8, 8, 7, n), 2, 7)
    assert x.shape == (2, 7, 8, 8)
    assert (x[:, 0] == x[:, 3]).all() and (x[:, 0] != x[:, 1]).any()


# -- an uploaded picture -------------------------------------------------------------------------
def encoded(array, kind="PNG", **more):
    out = io.BytesIO()
    Image.fromarray(array).save(out, kind, **more)
    return out.getvalue()


RED = np.zeros((20, 30, 3), np.uint8) + np.array([255, 0, 0], np.uint8)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_upload_keeps_colours_and_has_the_requested_shape(kind):
    planes = pictures.upload_planes(encoded(RED, kind), 7, 5, 4)
    assert planes.shape == (3, 7, 5) and planes.dtype == np.float32
    assert (planes[0] == 9).all() and (planes[1:] == 0).all()
    assert pictures.upload_planes(encoded(RED, kind), 7, 5, 1).shape == (1, 7, 5)


def test_upload_averages_down():
    checks = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)
    assert pictures.upload_planes(encoded(checks), 32, 32, 1) == pytest.approx(4.5, abs=0.05)


def test_upload_of_16_bits_and_of_transparent_pixels():
    deep = np.full((4, 4), 65535, np.uint16)
    assert (pictures.upload_planes(encoded(deep), 4, 4, 1) == 9).all()
    clear = np.zeros((4, 4, 4), np.uint8)
    assert (pictures.upload_planes(encoded(clear), 4, 4, 1) == 9).all()  # on white paper


def png_of_size(width, height):
    """Returns a PNG whose header has a size and which has no pixels."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@every(
    ("data", "says"),
    [
        (b"", "PNG or JPEG"),
        (b"<script>alert(1)</script>", "neither"),
        (encoded(RED, "GIF"), "a GIF"),
        (encoded(RED, "BMP"), "a BMP"),
        (encoded(RED) + b"\0" * 10**7, "10 MB"),
        (png_of_size(8000, 6000), "40 megapixels"),
        (png_of_size(60000, 60000), "40 megapixels"),
        (png_of_size(0, 5), "damaged"),
        (png_of_size(5, 5), "damaged"),
        (encoded(RED)[:60], "damaged"),
        (encoded(RED, "JPEG")[:300], "damaged"),
        (b"\x89PNG\r\n\x1a\n", "damaged"),
        (b"\xff\xd8\xff", "damaged"),
    ],
)
def test_upload_error_names_the_rule(data, says):
    with pytest.raises(PictureError, match=says):
        pictures.upload_planes(data, 8, 8, 3)


@settings(max_examples=25)
@given(st.data())
def test_upload_of_a_damaged_file_is_a_picture_or_an_error(data):
    whole = bytearray(encoded(RED, data.draw(st.sampled_from(["PNG", "JPEG"]))))
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        planes = pictures.upload_planes(bytes(whole), 4, 4, 3)
    except PictureError:
        return
    assert planes.shape == (3, 4, 4) and np.isfinite(planes).all()


# -- filters -------------------------------------------------------------------------------------
@settings(max_examples=25)
@given(st.sampled_from(FILTERS), st.integers(1, 11), st.integers(1, 11), st.integers(1, 12), st.integers(1, 4))
def test_every_filter_at_every_size(first, R, S, K, C):
    w = pictures.filters(K, C, R, S, first)
    assert w.shape == (K, C, R, S) and w.dtype == np.float32 and np.isfinite(w).all()
    assert (w == w[:, :1]).all()
    assert len(pictures.filter_names(K, first)) == K


def test_filters_cycle_through_the_list_then_are_random():
    assert pictures.filter_names(8, "sobel-x") == [
        "sobel-x",
        "sobel-y",
        "random",
        "identity",
        "blur",
        "sharpen",
        "random",
        "random",
    ]
    w = pictures.filters(20, 1, 3, 3, "identity")
    assert len({one.tobytes() for one in w}) == 20
    assert set(w[6:].ravel()) <= {-2, -1, 0, 1, 2}


def test_well_known_filters():
    assert pictures.taps("sobel-x", 3, 3).tolist() == [[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]
    assert pictures.taps("sobel-y", 3, 3).tolist() == [[-1, -2, -1], [0, 0, 0], [1, 2, 1]]
    assert pictures.taps("sharpen", 3, 3).tolist() == [[0, -1, 0], [-1, 5, -1], [0, -1, 0]]
    assert pictures.taps("sobel-x", 5, 5)[2].tolist() == [-6, -12, 0, 12, 6]


@settings(max_examples=25)
@given(st.integers(1, 11), st.integers(1, 11))
def test_sums_of_filter_taps(R, S):
    for name in ("identity", "blur", "sharpen"):
        assert pictures.taps(name, R, S).sum() == pytest.approx(1)
    if S > 1:
        assert pictures.taps("sobel-x", R, S).sum() == 0
    if R > 1:
        assert pictures.taps("sobel-y", R, S).sum() == 0


@settings(max_examples=25)
@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_custom_taps_round_trip(R, S, data):
    values = np.array(data.draw(st.lists(st.integers(-1000, 1000), min_size=R * S, max_size=R * S)))
    text = pictures.taps_text(values.reshape(R, S))
    assert (pictures.parse_taps(text, R, S) == values.reshape(R, S)).all()
    w = pictures.filters(2, 3, R, S, CUSTOM, custom=pictures.parse_taps(text, R, S))
    assert (w[0, 2].ravel() == values).all()


@every(
    ("text", "says"),
    [
        ("1 2 3", "3 × 3 = 9 numbers, got 3"),
        ("", "got 0"),
        ("1 2 3 4 5 6 7 8 x", "must be a number, got 'x'"),
        ("1 2 3 4 5 6 7 8 nan", "between"),
        ("1 2 3 4 5 6 7 8 -inf", "between"),
        ("1 2 3 4 5 6 7 8 1e9", "between −1,000 and 1,000"),
    ],
)
def test_custom_taps_error_names_the_rule(text, says):
    with pytest.raises(PictureError, match=says):
        pictures.parse_taps(text, 3, 3)


def test_unknown_names_raise_an_error():
    with pytest.raises(PictureError, match="must be one of digit"):
        pictures.planes("cat", 4, 4, 1)
    with pytest.raises(PictureError, match="must be one of identity"):
        pictures.taps("emboss", 3, 3)


# -- as small images -----------------------------------------------------------------------------
@pytest.mark.parametrize(("H", "W"), [(1, 1), (3, 3), (8, 8), (300, 500)])
def test_small_images_have_a_pixel_for_each_value(H, W):
    values = np.arange(H * W, dtype=np.float32).reshape(H, W)
    rgb = pictures.picture_rgb(values - values.mean(), LIGHT["output"], LIGHT["ground"], LIGHT["ink"])
    assert rgb.dtype == np.uint8 and rgb.shape == (H, W, 3)


def test_signed_values_grow_darker_from_negative_to_positive():
    rgb = pictures.picture_rgb(np.array([[-2, -1, 0, 1, 2]]), LIGHT["output"], LIGHT["ground"], LIGHT["ink"])
    light = rgb[0].sum(axis=1).tolist()
    assert light == sorted(light, reverse=True) and len(set(light)) == 5


def test_picture_for_a_page_is_a_png_that_others_read():
    rgb = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    kind, _, data = pictures.data_uri(rgb).partition(",")
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert kind == "data:image/png;base64" and image.format == "PNG"
    np.testing.assert_array_equal(np.asarray(image), rgb)
