"""The steps of global average pooling, forward and backward, in the Recorder of a scene."""

from __future__ import annotations

import numpy as np

from kernels.model.program import Tiles
from kernels.pooling.shape import GlobalShape
from visuals.scene.recorder import Recorder
from visuals.scene.requests import BITS, LANES, mask_of


def shown_lanes(first: int, count: int) -> dict[str, int]:
    """Returns warp and mask of the first 32 of `count` threads from `first` on."""
    return {"warp": first // LANES, "mask": mask_of(np.arange(min(count, LANES)))}


def global_plane(r: Recorder, s: GlobalShape, tiles: Tiles, x: np.ndarray) -> None:
    """Record one thread per plane: all threads read the same pixel of their planes at the same time."""
    planes, sums, every = x.reshape(s.planes, s.area), np.zeros(s.planes, np.float32), np.arange(s.planes)
    r.step("start", **shown_lanes(0, s.planes))
    r.put("sum", sums)
    for pixel in range(s.area):
        sums = sums + planes[:, pixel]
        r.step("pixel", pixel, s.area, sums[0], **shown_lanes(0, s.planes), loads=s.planes)
        r.look("x", every * s.area + pixel)
        r.put("sum", sums)
    y = sums / np.float32(s.area)
    r.step("store", s.area, sums[0], y[0], **shown_lanes(0, s.planes))
    r.look("sum", every)
    r.put("y", y)


def global_warp(r: Recorder, s: GlobalShape, tiles: Tiles, x: np.ndarray) -> None:
    """Record one warp for several planes: loads, exchanges among lanes, a store for each plane."""
    per, vector = tiles["PLANES"], 1 if s.area % 4 else 4
    for first in range(0, s.planes, per):
        count = min(per, s.planes - first)
        planes = x.reshape(s.planes, s.area)[first : first + count]
        if first == 0:
            _first_warp(r, s, planes, vector)
        else:
            r.step(
                "warp",
                first // per,
                first,
                first + count - 1,
                **shown_lanes(first // per * LANES, LANES),
                loads=planes.size,
            )
            r.look("x", first * s.area + np.arange(planes.size))
            sums = _exchanged(_lane_sums(planes, vector)[-1])
            r.put("sums", sums)
            r.put("y", sums[:, 0] / np.float32(s.area), first + np.arange(count))


def _lane_sums(planes: np.ndarray, vector: int) -> list[np.ndarray]:
    """Returns the sums of the lanes, float32 [planes, 32], after each iteration of the loop."""
    count, area = planes.shape
    sums, after = np.zeros((count, LANES), np.float32), []
    for start in range(0, area, LANES * vector):
        part = planes[:, start : start + LANES * vector].reshape(count, -1, vector)
        four = part[:, :, 0] if vector == 1 else (part[..., 0] + part[..., 1]) + (part[..., 2] + part[..., 3])
        sums = sums.copy()
        sums[:, : four.shape[1]] += four
        after.append(sums)
    return after


def _first_warp(r: Recorder, s: GlobalShape, planes: np.ndarray, vector: int) -> None:
    count, at_once = len(planes), LANES * vector
    after = _lane_sums(planes, vector)
    for iteration, sums in enumerate(after):
        pixels = np.arange(iteration * at_once, min((iteration + 1) * at_once, s.area))
        lanes = len(pixels) // vector
        args = (lanes, vector, iteration * at_once, sums[0, 0])
        r.step("load" if vector > 1 else "load_one", *args, **shown_lanes(0, lanes), loads=count * len(pixels))
        r.look("x", np.arange(count)[:, None] * s.area + pixels)
        r.put("sums", sums)
    row = after[-1][0]
    for bit in BITS:
        r.step("exchange", 0, bit, row[0], row[bit], row[0] + row[bit], **shown_lanes(0, LANES))
        row = row + row[np.arange(LANES) ^ bit]
        r.put("sums", row, np.arange(LANES))
    y = row[0] / np.float32(s.area)
    r.step("store", 0, s.area, y, **shown_lanes(0, 1))
    r.look("sums", np.array([0]))
    r.put("y", y, np.array([0]))
    for k, row in enumerate(_exchanged(after[-1][1:]), 1):
        y = row[0] / np.float32(s.area)
        r.step("plane", k, row[0], s.area, y, **shown_lanes(0, LANES))
        r.put("sums", row, k * LANES + np.arange(LANES))
        r.put("y", y, np.array([k]))


def _exchanged(sums: np.ndarray) -> np.ndarray:
    """Returns the sums of the lanes after the five exchanges of each plane, float32 [planes, 32]."""
    for bit in BITS:
        sums = sums + sums[:, np.arange(LANES) ^ bit]
    return sums


def global_spread(r: Recorder, s: GlobalShape, tiles: Tiles, dy: np.ndarray) -> None:
    """Record one thread per pixel, a warp at a time."""
    _spread(r, s, dy, 1)


def global_spread_four(r: Recorder, s: GlobalShape, tiles: Tiles, dy: np.ndarray) -> None:
    """Record four pixels per thread, a warp at a time."""
    _spread(r, s, dy, 4)


def _spread(r: Recorder, s: GlobalShape, dy: np.ndarray, width: int) -> None:
    share = dy.ravel() / np.float32(s.area)
    for first in range(0, s.pixels, LANES * width):
        pixels = np.arange(first, min(first + LANES * width, s.pixels))
        planes, threads = pixels // s.area, -(-len(pixels) // width)
        plane = int(planes[0])
        warp = shown_lanes(first // width, threads)
        if width == 1:
            r.step("warp", first, pixels[-1], plane, s.area, share[plane], **warp)
        else:
            straddles = any(len(set(group)) > 1 for group in np.array_split(planes, range(4, len(planes), 4)))
            kind = "straddle" if straddles else "warp"
            r.step(kind, threads, first, plane, s.area, share[plane], **warp)
        r.look("dy", np.unique(planes))
        r.put("dx", share[planes], pixels)
