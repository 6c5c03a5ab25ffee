"""Bulk copies: boxes of tensors by the copy engine (TMA), adjacent bytes, swizzles, edges, stores, multicast."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines.emulator import tensor_maps
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.swizzle import swizzled
from kernels.model.tensor_map import ELEMENTS, Im2colMap, StridedMap, TensorMap
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.hopper import LOAD_96_BYTES, run_hopper
from tests.helpers.offenders import every

i32, u8, f32 = np.int32, np.uint8, np.float32
SHARED = 64 * 1024


def map_of(name: str, x: np.ndarray, box: tuple[int, ...], swizzle: int = 0) -> TensorMap:
    """Returns the map of a contiguous array; `box` is innermost first."""
    return TensorMap(name, x.dtype.name, x.shape[::-1], x.strides[-2::-1], box, swizzle)


def box_of(x: np.ndarray, box: tuple[int, ...], corner: tuple[int, ...]) -> np.ndarray:
    """Returns a box of an array, zeros outside it; `box` and `corner` are innermost first."""
    out = np.zeros(box[::-1], x.dtype)
    for at in np.ndindex(*box[::-1]):
        source = tuple(c + a for c, a in zip(corner[::-1], at, strict=True))
        if all(0 <= s < n for s, n in zip(source, x.shape, strict=True)):
            out[at] = x[source]
    return out


def laid_out(data: np.ndarray, swizzle: int) -> np.ndarray:
    """Returns the bytes of shared memory after a box was stored at its start."""
    raw = np.ascontiguousarray(data).view(u8).reshape(-1)
    out = np.zeros(-(-raw.size // 1024) * 1024, u8)
    out[swizzled(np.arange(raw.size), swizzle)] = raw
    return out


LOAD = """
  extern __shared__ __align__(1024) char s[]; __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init_barrier(&full, 1); publish_barriers();
    arrive_expecting(&full, bytes);
    LOAD
  }
  __syncthreads();
  wait(&full, 0);
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) y[SWIZZLED] = s[SWIZZLED];
"""
# The bytes of a box that is smaller than its rows of eight are not adjacent: copy where they are.
AT = {0: "i", 32: "(i ^ (i >> 3 & 0x10))", 64: "(i ^ (i >> 3 & 0x30))", 128: "(i ^ (i >> 3 & 0x70))"}


def load_instruction(rank: int) -> str:
    """Returns the assembler of a load of a box; its coordinates are `c`."""
    numbers = ", ".join(f"%{n + 3}" for n in range(rank))
    inputs = ", ".join(f'"r"(c{n})' for n in range(rank))
    return (
        f'asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes '
        f'[%0], [%1, {{{numbers}}}], [%2];" :: "r"(shared_address(s)), "l"(&map), "r"(shared_address(&full)), {inputs} '
        ': "memory");'
    )


def loaded(
    x: np.ndarray,
    box: tuple[int, ...],
    corner: tuple[int, ...],
    swizzle: int = 0,
    map_: TensorMap | None = None,
    instruction: str = "",
) -> np.ndarray:
    """Returns the bytes of shared memory after a kernel has loaded a box of x; zeros where nothing was loaded."""
    map_ = map_ or map_of("x", x, box, swizzle)
    body = LOAD.replace("SWIZZLED", AT[swizzle]).replace("LOAD", instruction or load_instruction(len(box)))
    args = {"char* y": "y", "const __grid_constant__ TensorMap map": map_, "int bytes": i32(map_.box_bytes)}
    args |= {f"int c{n}": i32(c) for n, c in enumerate(corner)}
    size = -(-map_.box_bytes // 1024) * 1024
    inputs = {"x": x.view(f"u{x.itemsize}"), "y": np.zeros(size, u8)}
    return run_hopper(body, args, inputs, shared=SHARED)["y"]


@st.composite
def boxes(draw):
    """Draws (array, box, corner, swizzle): any rank and type, corners inside and far outside."""
    dtype = draw(st.sampled_from([u8, np.float16, ml_dtypes.bfloat16, f32]))
    item, rank = np.dtype(dtype).itemsize, draw(st.integers(1, 5))
    swizzle = draw(st.sampled_from([0, 32, 64, 128]))
    row = draw(st.integers(1, (swizzle or 128) // 16)) * 16 // item
    box = (row, *(draw(st.integers(1, 5)) for _ in range(rank - 1)))
    inner = draw(st.integers(1, 6)) * 16 // item
    extents = (inner, *(draw(st.integers(1, 6)) for _ in range(rank - 1)))
    corner = tuple(draw(st.integers(-n - 1, e + 1)) for n, e in zip(box, extents, strict=True))
    values = np.arange(1, np.prod(extents) + 1) % 251
    return values.astype(dtype).reshape(extents[::-1]), box, corner, swizzle


@needs_nvrtc
@settings(max_examples=40)
@given(boxes())
def test_loads_any_box_with_zeros_outside(case):
    x, box, corner, swizzle = case
    expected = laid_out(box_of(x, box, corner), swizzle)
    np.testing.assert_array_equal(loaded(x, box, corner, swizzle), expected)


@given(boxes())
def test_a_map_survives_its_128_bytes(case):
    x, box, _, swizzle = case
    map_ = map_of("", x, box, swizzle)
    data = tensor_maps.encoded(map_, 1 << 33)
    assert len(data) == 128 and tensor_maps.decoded(data) == (map_, 1 << 33)
    assert tensor_maps.decoded(bytes(128)) is None


@every(
    "change, rule",
    [
        ({"strides": (24,)}, "strides in multiples of 16 bytes"),
        ({"box": (4, 300)}, "a box of 1 to 256"),
        ({"box": (3, 8)}, "rows are multiples of 16 bytes"),
        ({"box": (64, 8), "swizzle": 128}, "no longer than the swizzle"),
        ({"box": (4,)}, "rank"),
        ({"swizzle": 16}, "a swizzle of"),
        ({"extents": (0, 4)}, "positive extents"),
    ],
)
def test_rules_of_a_map(change, rule):
    valid = {"buffer": "x", "dtype": "float32", "extents": (8, 4), "strides": (32,), "box": (4, 2)}
    TensorMap(**valid).check()
    with pytest.raises(ValueError, match=rule):
        TensorMap(**(valid | change)).check()


def test_every_piece_of_eight_swizzled_rows_has_its_own_banks():
    """Of 8 rows of 128 bytes, the pieces of one column are in 8 different places of a row."""
    column = np.arange(8) * 128
    for piece in range(8):
        assert len(set(swizzled(column + 16 * piece, 128) % 128)) == 8
        assert len(set(swizzled(column + 16 * piece, 0) % 128)) == 1


@needs_nvrtc
@settings(max_examples=15)
@given(boxes(), st.data())
def test_loads_every_second_or_third_element(case, data):
    x, box, corner, _ = case
    steps = (1, *(data.draw(st.integers(1, 3)) for _ in box[1:]))
    map_ = StridedMap(*vars(map_of("x", x, box)).values(), steps)
    whole = box_of(x, map_.span, corner)  # with the elements that are left out
    expected = laid_out(whole[tuple(slice(None, None, step) for step in steps[::-1])], 0)
    np.testing.assert_array_equal(loaded(x, box, corner, map_=map_), expected)
    assert tensor_maps.decoded(tensor_maps.encoded(map_, 1 << 33))[0] == replace(map_, buffer="")


@st.composite
def windows(draw):
    """Draws (pixels [N, H, W, C], map, corner of the first window, tap) of a convolution."""
    sizes, strides, pads, taps = ([draw(st.integers(*r)) for _ in "wh"] for r in ((1, 6), (1, 3), (0, 3), (0, 2)))
    after = [
        draw(st.integers(max(0, tap + 1 - size - pad), 3)) for size, pad, tap in zip(sizes, pads, taps, strict=True)
    ]
    N, C, channels = draw(st.integers(1, 3)), 8 * draw(st.integers(1, 3)), 8 * draw(st.integers(1, 2))
    x = (np.arange(1, N * sizes[0] * sizes[1] * C + 1) % 251).astype(np.float16).reshape(N, *sizes[::-1], C)
    map_ = Im2colMap(
        "x",
        "float16",
        x.shape[::-1],
        x.strides[-2::-1],
        (channels, draw(st.integers(1, 20))),
        0,
        tuple(strides),
        tuple(-pad for pad in pads),
        tuple(more - tap for more, tap in zip(after, taps, strict=True)),
    )
    q, p = (draw(st.integers(0, count - 1)) for count in map_.corners)
    corner = (8 * draw(st.integers(-1, 2)), q * strides[0] - pads[0], p * strides[1] - pads[1], draw(st.integers(0, N)))
    return x, map_, corner, tuple(draw(st.integers(0, tap)) for tap in taps)


def pixels_under(x: np.ndarray, map_: Im2colMap, corner, tap) -> np.ndarray:
    """Returns [pixels, channels]: the pixels under a tap, window after window, one at a time."""
    (_, H, W, _), (channels, count) = x.shape, map_.box
    out, (c, w, h, n) = np.zeros((count, channels), x.dtype), corner
    for i in range(count):
        for j in range(channels):
            at = n, h + tap[1], w + tap[0], c + j
            if all(0 <= a < extent for a, extent in zip(at, x.shape, strict=True)):
                out[i, j] = x[at]
        w += map_.steps[0]
        if w > W - 1 + map_.upper[0]:
            w, h = map_.lower[0], h + map_.steps[1]
        if h > H - 1 + map_.upper[1]:
            h, n = map_.lower[1], n + 1
    return out


IM2COL = (
    'asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], '
    '[%1, {%3, %4, %5, %6}], [%2], {%7, %8};" :: "r"(shared_address(s)), "l"(&map), "r"(shared_address(&full)), '
    '"r"(c0), "r"(c1), "r"(c2), "r"(c3), "h"((unsigned short)TAP_W), "h"((unsigned short)TAP_H) : "memory");'
)


def loaded_pixels(x, map_, corner, tap) -> np.ndarray:
    text = IM2COL.replace("TAP_W", str(tap[0])).replace("TAP_H", str(tap[1]))
    return loaded(x, map_.box, corner, map_=map_, instruction=text)


@needs_nvrtc
@settings(max_examples=30)
@given(windows())
def test_mode_im2col_goes_from_window_to_window(case):
    x, map_, corner, tap = case
    np.testing.assert_array_equal(loaded_pixels(*case), laid_out(pixels_under(x, map_, corner, tap), 0))
    assert tensor_maps.decoded(tensor_maps.encoded(map_, 1 << 33))[0] == replace(map_, buffer="")


SQUARE = np.ones((1, 4, 4, 8), np.float16)
SQUARE_MAP = Im2colMap(
    "x", "float16", (8, 4, 4, 1), (16, 64, 256), (8, 4), 0, (2, 2), (-1, -1), (-1, -1)
)  # 3 x 3, padding 1, stride 2


@needs_nvrtc
@pytest.mark.parametrize(
    "corner, tap, message",
    [
        ((0, 0, -1, 0), (0, 0), "no window begins at column 0, row -1"),
        ((0, 3, -1, 0), (0, 0), "no window begins at column 3, row -1"),
        ((0, -1, -1, 0), (256, 0), r"offsets of a tap are 0 .. 255, got \(256, 0\)"),
    ],
)
def test_wrong_windows(corner, tap, message):
    with pytest.raises(EmulatorError, match=message):
        loaded_pixels(SQUARE, SQUARE_MAP, corner, tap)


@needs_nvrtc
def test_a_copy_and_its_map_have_one_mode():
    with pytest.raises(EmulatorError, match="the map is of mode im2col and the copy is not, or the reverse"):
        loaded(SQUARE, (8, 4), (0, -1, -1, 0), map_=SQUARE_MAP, instruction=load_instruction(4))


@pytest.mark.parametrize(
    "change, rule",
    [
        ({"steps": (9, 1)}, "steps of 1 to 8"),
        ({"lower": (-129, 0)}, "corners in -128 .. 127"),
        ({"box": (8, 1025)}, "1 to 1024 pixels"),
        ({"upper": (-5, 0)}, "a corner of a window"),
        ({"strides": (16, 64)}, "extents"),
    ],
)
def test_rules_of_a_map_of_windows(change, rule):
    SQUARE_MAP.check()
    with pytest.raises(ValueError, match=rule):
        replace(SQUARE_MAP, **change).check()


@pytest.mark.parametrize(
    "steps, rule", [((1,), "a step for each"), ((1, 9), "steps of 1 to 8"), ((1, 8), "covers 1 to 256")]
)
def test_rules_of_a_map_with_steps(steps, rule):
    with pytest.raises(ValueError, match=rule):
        StridedMap("x", "float32", (8, 4), (32,), (4, 64), 0, steps).check()


STORE = """
  extern __shared__ __align__(1024) float s[];
  for (int i = threadIdx.x; i < rows * 32; i += blockDim.x) s[i / 32 * 32 + (i % 32 ^ i / 32 % 8 * 4)] = i;
  publish_writes();
  __syncthreads();
  if (threadIdx.x == 0) { store_box(&map, col, row, s); close_stores(); wait_stores_read<0>(); }
"""


def stored(body: str, col: int, row: int, rows: int = 16, **options) -> np.ndarray:
    x = np.full((20, 44), -1, f32)
    args = {
        "const __grid_constant__ TensorMap map": map_of("x", x, (32, rows), 128),
        "int rows": i32(rows),
        "int col": i32(col),
        "int row": i32(row),
    }
    return run_hopper(body, args, {"x": x}, shared=rows * 128, **options)["x"]


@needs_nvrtc
@pytest.mark.parametrize("col, row", [(0, 0), (4, 2), (20, 10), (-8, -3), (44, 0)])
def test_stores_only_what_is_inside(col, row):
    expected = np.full((20, 44), -1, f32)
    for n in range(16 * 32):
        r, c = row + n // 32, col + n % 32
        if 0 <= r < 20 and 0 <= c < 44:
            expected[r, c] = n
    np.testing.assert_array_equal(stored(STORE, col, row), expected)


@needs_nvrtc
def test_counts_the_bytes_of_the_tensor_only():
    x = np.zeros((20, 44), f32)
    args = {
        "const __grid_constant__ TensorMap map": map_of("x", x, (32, 16), 128),
        "int rows": i32(16),
        "int col": i32(40),
        "int row": i32(10),
    }
    total = run_hopper(STORE, args, {"x": x}, shared=2048).total
    assert (total["bulk_bytes_st"], total["bulk_bytes_ld"], total["bytes_st"]) == (4 * 4 * 10, 0, 0)


BOTH_WAYS = (
    LOAD_96_BYTES
    + """  s[threadIdx.x] += 1;
  publish_writes();
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
      :: "l"(y), "r"(shared_address(s)), "r"(96) : "memory");
    close_stores();
  }
  AFTER"""
)


def both_ways(after: str, order: str | int = "forward", block: int = 64):
    x = np.arange(128, dtype=u8)
    arguments = {"char* y": "y", "const char* x": "x"}, {"x": x}, {"y": (96, u8)}
    return run_hopper(BOTH_WAYS.replace("AFTER", after), *arguments, shared=128, block=block, races=True, order=order)


@needs_nvrtc
def test_adjacent_bytes_both_ways():
    y = both_ways("if (threadIdx.x == 0) wait_stores_read<0>();", block=32)["y"]
    np.testing.assert_array_equal(y, np.arange(16, 112, dtype=u8) + (np.arange(96) < 32))


@needs_nvrtc
@pytest.mark.parametrize("order", ["forward", "reversed"])
def test_bytes_that_a_store_still_reads_are_not_overwritten(order):
    wait = "if (threadIdx.x == 0) wait_stores_read<0>();"
    assert both_ways(f"{wait} __syncthreads(); s[threadIdx.x] = 0;", order).races == ()
    with pytest.raises(
        EmulatorError, match=r"write at s\[\d+\].* before the copy that reads it was waited for, begun at \S+:\d+"
    ):
        both_ways(f"s[threadIdx.x] = 0; {wait}", order)


@needs_nvrtc
def test_the_wait_for_a_store_is_no_barrier():
    (race,) = both_ways("if (threadIdx.x == 0) wait_stores_read<0>(); if (threadIdx.x >= 32) s[threadIdx.x] = 0;").races
    assert "writes s[" in race and "reads at" in race


@needs_nvrtc
def test_a_copy_over_bytes_that_threads_read_is_a_race():
    again = """if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    arrive_expecting(&full, 96);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(shared_address(s)), "l"(x + 16), "r"(96), "r"(shared_address(&full)) : "memory");
  }
  wait(&full, 1);
  y[threadIdx.x] = s[threadIdx.x];"""
    read = "int got = s[threadIdx.x]; if (got == 120) y[0] = 1; "
    assert both_ways(f"{read} __syncthreads(); {again}").races == ()
    assert any("writes s[" in race and "reads at" in race for race in both_ways(f"{read} {again}").races)


MULTICAST = """
  extern __shared__ __align__(1024) unsigned char s[]; __shared__ Barrier full;
  unsigned rank = cluster_rank();
  if (threadIdx.x == 0) { init_barrier(&full, 1); publish_barriers(); arrive_expecting(&full, BYTES); }
  cluster_barrier();
  if (threadIdx.x == 0 && rank == 1) load_box_to(MASK, s, &map, 0, blockIdx.x / 4, &full);
  wait(&full, 0);
  y[blockIdx.x * 32 + threadIdx.x] = s[threadIdx.x];
  cluster_barrier();
"""


def multicast(mask: str, nbytes: str = "32") -> np.ndarray:
    x = np.arange(96, dtype=u8).reshape(3, 32)
    args = {"unsigned char* y": "y", "const __grid_constant__ TensorMap map": map_of("x", x, (32, 1))}
    body = MULTICAST.replace("MASK", mask).replace("BYTES", nbytes)
    run = run_hopper(body, args, {"x": x}, {"y": ((12, 32), u8)}, "__cluster_dims__(4, 1, 1)", grid=12, shared=1024)
    return run["y"]


@needs_nvrtc
def test_multicast_writes_to_the_blocks_of_the_mask():
    expected = np.repeat(np.arange(96, dtype=u8).reshape(3, 32), 4, axis=0)
    np.testing.assert_array_equal(multicast("15"), expected)


@needs_nvrtc
@pytest.mark.parametrize(
    "mask, message",
    [
        ("31", r"the mask 0b11111 is not of a cluster of 4 blocks"),
        (
            "7",
            r"deadlock: the mbarrier at full\[0\] in shared memory waits for 32 bytes of copies, .*\(warp 0\), by thread",
        ),
    ],
)
def test_wrong_masks(mask, message):
    with pytest.raises(EmulatorError, match=message):
        multicast(mask)


def test_elements_have_the_sizes_of_their_types():
    assert all(np.dtype(getattr(ml_dtypes, n, None) or n).itemsize == size for n, size in ELEMENTS.items())
