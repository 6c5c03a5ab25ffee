"""Winograd's kernels for both gradients as scenes: transforms of tiles, products position by position, transforms back.

The gradient of the input is a convolution of dy with turned filters: the forward pass's launches after another transform of
the filters. The gradient of the filters has each of the forward pass's transforms on its other side. All values are those
that the emulator computed. Workspaces have the layout of the kernels: the rows of one position are below those of the
position before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.conv import winograd_matrices
from kernels.conv.backward.dinput_winograd import convolution
from kernels.conv.shape import ConvShape
from kernels.conv.winograd_cpu import R
from kernels.i18n import mark, tr
from kernels.model.launch import ceil
from visuals.conv.backward import frame
from visuals.conv.winograd.part import Terms, sum_of, terms
from visuals.scene.fold import folded, repeats
from visuals.scene.parts import Group, Reading, Sum, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene

DINPUT, DWEIGHT = "conv-dinput/winograd", "conv-dweight/winograd"
NOTE = mark(
    "One filter and one tile after another, then one position after another. On the GPU each of the four launches runs all its "
    "threads at once."
)
EMPTY: Terms = (np.zeros(0, int), np.zeros(0, np.float32))


@dataclass(frozen=True)
class Tiles:
    """The tiles of one image of a convolution: `windows` the pixel of H x W under each of T*T positions, `outputs` the pixel
    of P x Q under each of m*m. -1: outside."""

    m: int
    windows: np.ndarray  # int64[tiles, T*T]
    outputs: np.ndarray  # int64[tiles, m*m]
    corners: np.ndarray  # int64[tiles, 2]: the first output of a tile

    @property
    def T(self) -> int:
        return self.m + R - 1

    @property
    def positions(self) -> int:
        return self.T**2

    def __len__(self) -> int:
        return len(self.corners)


def tiles_of(s: ConvShape, m: int) -> Tiles:
    """Returns the tiles of m x m outputs of one image, row by row."""
    corners = m * np.stack(np.divmod(np.arange(ceil(s.P, m) * ceil(s.Q, m)), ceil(s.Q, m)), axis=1)
    windows = _inside(corners - np.array(s.pad), m + R - 1, (s.H, s.W))
    return Tiles(m, windows, _inside(corners, m, (s.P, s.Q)), corners)


def _inside(corners: np.ndarray, side: int, size: tuple[int, int]) -> np.ndarray:
    """Returns int64[corners, side*side]: the pixels of squares in an image of a size, -1 outside."""
    rows, columns = (corners[:, axis, None] + np.arange(side) for axis in (0, 1))
    inside = ((rows >= 0) & (rows < size[0]))[:, :, None] & ((columns >= 0) & (columns < size[1]))[:, None]
    return np.where(inside, rows[:, :, None] * size[1] + columns[:, None], -1).reshape(len(corners), -1)


class Matrices:
    """A workspace [positions, rows, columns] on the stage: the cells of each region, and their values."""

    def __init__(self, name: str, values: np.ndarray, columns: int):
        self.name, self.values = name, values[..., :columns]
        self.cells = np.arange(self.values.size).reshape(self.values.shape)

    def put(self, r: Recorder, region) -> None:
        r.put(self.name, self.values[region], self.cells[region])

    def look(self, r: Recorder, region) -> None:
        r.look(self.name, self.cells[region])

    def tensor(self, title: str, role: str, whole: int) -> Tensor:
        *_, rows, columns = self.values.shape
        count = self.values.size // (rows * columns)
        note = tr("{n} matrices {rows} × {columns}", n=count, rows=rows, columns=columns)
        if columns < whole:
            note = tr("{n} matrices {rows} × {columns}, the tiles of image 0", n=count, rows=rows, columns=columns)
        return Tensor(self.name, self.name, title, role, 1, count * rows, columns, note=note, partial=columns < whole)


# -- the gradient of the input ---------------------------------------------------------------------------
def dinput_kinds(flip: bool) -> frame.Kinds:
    """Returns the kinds of steps. {0} filter or tile, {1} {2} map or corner, {3} ... numbers."""
    turned = (
        tr("The forward pass turned its taps. So the thread copies them to [g](filter) as they are.")
        if flip
        else tr("The thread copies its taps to [g](filter) turned by 180°: the last one becomes the first.")
    )
    return {
        "turn": ("g[i / 3][i % 3]", tr("Filter {0}, map {1}: one thread has this filter.") + " " + turned),
        "u": ("transform_2d(G, g, u)", tr("It stores [U](filter) = G g Gᵀ: {2} numbers, one in each of {2} matrices. The first is {3}.")),
        "u-zeros": ("round_up_4(shape.K) || block_c", tr("{0} threads of each filter have no map and store zeros. So a row of [U](filter) has a multiple of 4 numbers.")),
        "tile": ("load_tile(input", tr("Tile {0} belongs to the pixels from row {1}, column {2}. A thread for each filter loads [dy](input) around them. {3} values of [d](input) are outside and zero.")),
        "v": ("transform_2d(BT, d, v)", tr("It stores [V](input) = Bᵀ d B: {2} numbers, one in each of {2} matrices. The first is {3}.")),
        "v-zeros": ("tile < tiles.count, d)", tr("{0} threads beyond the last tile store zeros, so that a row of [V](input) has a multiple of 4 numbers.")),
        "product": ("sum[i][j] +=", tr("Position ({0}, {1}) of all tiles: [Z](output) = [U](filter)ᵀ [V](input), summed over the filters. The first value is {2}.")),
        "result": ("transform_2d(AT, z, out)", tr("Tile {0}: a thread for each map loads {3} sums [Z](output) and computes Aᵀ Z A: pixels of [dx](output) from row {1}, column {2}.")),
        "result-cut": ("transform_2d(AT, z, out)", tr("Tile {0}: a thread for each map computes Aᵀ Z A: [dx](output) from row {1}, column {2}. {4} values are outside and are dropped.")),
    }  # fmt: skip


def dinput_scene(s: ConvShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of inputs dy [N,K,P,Q] and w [K,C,3,3], of image 0. RuleError if a rule forbids it."""
    found = frame.run(DINPUT, s, tiles, inputs)
    m = dict(found.program.launch().defines)["M"]
    of, kinds = tiles_of(convolution(s), m), dinput_kinds(s.flip)
    r, columns = frame.recorder(kinds), found["V"].shape[2] if s.N == 1 else len(of)
    U, V, Z = Matrices("U", found["U"], found["U"].shape[2]), *(Matrices(n, found[n], columns) for n in "VZ")
    starts = [0]
    _turned_filters(r, found, U, of)
    starts.append(r.steps)
    _gradient_tiles(r, found, V, of)
    starts.append(r.steps)
    for p in range(of.positions):
        r.step("product", *divmod(p, of.T), Z.values[p, 0, 0], multiplied=s.K * s.C * len(of))
        U.look(r, np.s_[p])
        V.look(r, np.s_[p])
        Z.put(r, np.s_[p])
    starts.append(r.steps)
    dx = found["dx"][0].reshape(s.C, -1)
    for tile in range(len(of)):
        valid = of.outputs[tile][of.outputs[tile] >= 0]
        cut = m * m - len(valid)
        r.step("result-cut" if cut else "result", tile, *of.corners[tile], of.positions, cut)
        Z.look(r, np.s_[:, :, tile])
        cells = np.arange(s.C)[:, None] * dx.shape[1] + valid
        r.put("dx", dx.ravel()[cells], cells)
    return frame.assemble(
        found,
        r,
        kinds,
        starts,
        _dinput_tensors(found, of, (U, V, Z)),
        _groups(of, ("dy", "w", "dx"), ("g", "d")),
        tr(NOTE),
        sums=_dinput_sums(s, of, (U, V, Z)),
        readings=_readings(r),
    )


def _turned_filters(r: Recorder, found: frame.Run, U: Matrices, of: Tiles) -> None:
    """Adds two steps for each filter and map: its taps are turned, and transformed."""
    s = found.s
    order = np.arange(9) if s.flip else 8 - np.arange(9)
    for k in range(s.K):
        for c in range(s.C):
            r.step("turn", k, c, 0, 0)
            r.copy("g", "w", (k * s.C + c) * 9 + order)
            r.step("u", k, c, of.positions, U.values[0, k, c])
            r.look("g", np.arange(9))
            U.put(r, np.s_[:, k, c])
    if (rest := U.values.shape[2] - s.C) > 0:
        r.step("u-zeros", rest)
        U.put(r, np.s_[:, :, s.C :])


def _gradient_tiles(r: Recorder, found: frame.Run, V: Matrices, of: Tiles) -> None:
    """Adds two steps for each tile of dy: it is loaded, and transformed."""
    s, size = found.s, found.s.PQ
    for tile, window in enumerate(of.windows):
        inside = window[window >= 0]
        r.step("tile", tile, *of.corners[tile], len(window) - len(inside))
        r.copy("d", "dy", window)
        r.look("dy", np.arange(s.K)[:, None] * size + inside)
        r.step("v", tile, 0, of.positions, V.values[0, 0, tile])
        r.look("d", np.arange(len(window)))
        V.put(r, np.s_[:, :, tile])
    if (rest := V.values.shape[2] - len(of)) > 0:
        r.step("v-zeros", rest)
        V.put(r, np.s_[:, :, len(of) :])


def _dinput_tensors(found: frame.Run, of: Tiles, matrices: Sequence[Matrices]) -> list[Tensor]:
    s, (U, V, Z), row = found.s, matrices, found["V"].shape[2]
    plane = tr("filter")
    turned = convolution(s)
    pad = tuple(max(0, n) for n in (turned.pad_h, turned.pad_w, turned.after[0], turned.after[1]))
    return [
        frame.image(
            "dy", tr("gradient of the output"), "input", s.K, (s.P, s.Q), found["dy"][0], plane_name=plane, pad=pad
        ),
        frame.filters("w", tr("filters"), s, values=found["w"]),
        frame.image("dx", tr("gradient of the input"), "output", s.C, (s.H, s.W), plane_name=tr("channel")),
        U.tensor(tr("U = G g Gᵀ"), "filter", U.values.shape[2]),
        V.tensor(tr("V = Bᵀ d B"), "input", row),
        Z.tensor(tr("Z = Uᵀ V"), "output", row),
        frame.matrix("g", tr("g, turned"), "filter", (3, 3)),
        frame.matrix("d", tr("d, of filter 0"), "input", (of.T, of.T)),
    ]


def _dinput_sums(s: ConvShape, of: Tiles, matrices: Sequence[Matrices]) -> tuple[Sum, ...]:
    U, V, Z = matrices
    t = winograd_matrices.derive(of.m, R)
    g, d, z = terms(t.G, flip=not s.flip), terms(t.BT), terms(t.AT)
    return (
        _sum("U", "w", U, lambda p, k, c: ((k * s.C + c) * 9 + g[p][0], g[p][1]) if c < s.C else EMPTY),
        _sum("V", "dy", V, lambda p, k, tile: _pixels(of, d[p], tile, k * s.PQ)),
        _products(U, V, Z, s.K, lambda p, c, tile, k: (U.cells[p, k, c], V.cells[p, k, tile]), len(of)),
        _result("dx", "Z", s.C, s.H * s.W, of, z, lambda positions, c, tile: Z.cells[positions, c, tile]),
    )


# -- the gradient of the filters -------------------------------------------------------------------------
def dweight_kinds(parts: int) -> frame.Kinds:
    """Returns the kinds of steps. {0} image or filter, {1} tile or map, {2} ... numbers."""
    taps = tr(
        "Filter {0}, map {1}: one thread loads {2} sums [Z](output) and computes Gᵀ Z G: the [taps](output) 3 × 3."
    )
    if parts > 1:
        taps = tr(
            "Filter {0}, map {1}: one thread adds the parts of {2} sums [Z](output). Then Gᵀ Z G are the [taps](output) 3 × 3."
        )
    return {
        "dy": ("d[i][j] = inside", tr("Image {0}, tile {1}: a thread for each filter loads its tile of [dy](workspace). {2} values are outside the output and zero.")),
        "u": ("transform_back_2d(AT, d, u)", tr("It stores [U](workspace) = A dY Aᵀ: {2} numbers for {3}. The forward pass ended with Aᵀ Z A, and its gradient goes back through A.")),
        "u-zeros": ("inside = tile < tiles.count", tr("{0} threads beyond the last tile store zeros, so that a row of [U](workspace) has a multiple of 4 numbers.")),
        "x": ("load_tile(input", tr("Image {0}, tile {1}: a thread for each map loads the pixels of [x](input) that these outputs read. {2} are in the padding: zeros.")),
        "v": ("transform_2d(BT, d, v)", tr("It stores [V](input) = Bᵀ d B, as in the forward pass: {2} numbers, one in each of {2} matrices.")),
        "v-zeros": ("tile < tiles.count, d)", tr("{0} threads beyond the last tile store zeros, as in U.")),
        "product": ("sum[i][j] +=", tr("Position ({0}, {1}): [Z](output) = [U](workspace) [V](input)ᵀ, summed over all {3} tiles of all images. The first value is {2}.")),
        "taps": ("transform_back_2d(G, z, taps)", taps),
    }  # fmt: skip


def dweight_scene(s: ConvShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of inputs x [N,C,H,W] and dy [N,K,P,Q]: all images. RuleError if a rule forbids it."""
    found = frame.run(DWEIGHT, s, tiles, inputs)
    m, parts = dict(found.program.launch().defines)["M"], len(found["Z"])
    of, kinds = tiles_of(s, m), dweight_kinds(parts)
    r, count = frame.recorder(kinds), s.N * len(of)
    U, V = (Matrices(n, found[n], found[n].shape[2]) for n in "UV")
    Z = Matrices("Z", found["Z"].reshape(-1, s.K, s.C), s.C)
    starts = [0]
    _tiles_of_images(r, s, of, ("dy", "u", "dY"), U, of.outputs, s.K * s.PQ, m * m)
    starts.append(r.steps)
    _tiles_of_images(r, s, of, ("x", "v", "d"), V, of.windows, s.C * s.H * s.W)
    starts.append(r.steps)
    for p in range(of.positions):
        of_parts = p + of.positions * np.arange(parts)
        r.step("product", *divmod(p, of.T), Z.values[p, 0, 0], count, multiplied=s.K * s.C * count)
        U.look(r, np.s_[p])
        V.look(r, np.s_[p])
        Z.put(r, of_parts)
    starts.append(r.steps)
    taps = found["dw"].reshape(-1, 9)
    for k in range(s.K):
        for c in range(s.C):
            r.step("taps", k, c, of.positions)
            Z.look(r, np.s_[:, k, c])
            r.put("dw", taps[k * s.C + c], (k * s.C + c) * 9 + np.arange(9))
    return frame.assemble(
        found,
        r,
        kinds,
        starts,
        _dweight_tensors(found, of, (U, V, Z)),
        _groups(of, ("x", "dy", "dw"), ("dY", "d")),
        tr(NOTE),
        sums=_dweight_sums(s, of, (U, V, Z), parts),
        readings=_readings(r),
    )


def _tiles_of_images(
    r: Recorder,
    s: ConvShape,
    of: Tiles,
    names: tuple[str, str, str],
    to: Matrices,
    squares,
    image: int,
    of_tile: int = 0,
) -> None:
    """Adds two steps for each tile of each image: it is loaded from a tensor to a register tile, and transformed.

    `names`: the tensor and its kind of step, the kind of the transform, the register tile. `squares`: the pixels of each
    tile in plane 0; `image`: the elements of an image."""
    tensor, transform, registers = names
    planes = to.values.shape[1]
    for n in range(s.N):
        for tile, square in enumerate(squares):
            inside = square[square >= 0]
            r.step(tensor, n, tile, len(square) - len(inside))
            r.copy(registers, tensor, np.where(square >= 0, n * image + square, -1))
            r.look(tensor, n * image + np.arange(planes)[:, None] * (image // planes) + inside)
            r.step(transform, n, tile, of.positions, of_tile)
            r.look(registers, np.arange(len(square)))
            to.put(r, np.s_[:, :, n * len(of) + tile])
    if (rest := to.values.shape[2] - s.N * len(of)) > 0:
        r.step(f"{transform}-zeros", rest)
        to.put(r, np.s_[:, :, s.N * len(of) :])


def _dweight_tensors(found: frame.Run, of: Tiles, matrices: Sequence[Matrices]) -> list[Tensor]:
    s, (U, V, Z) = found.s, matrices
    pad = tuple(max(0, n) for n in (s.pad_h, s.pad_w, s.after[0], s.after[1]))
    maps, filters = (tr("image and channel"), tr("image and filter")) if s.N > 1 else (tr("channel"), tr("filter"))
    return [
        frame.image("x", tr("input"), "input", s.N * s.C, (s.H, s.W), found["x"], plane_name=maps, pad=pad),
        frame.image(
            "dy", tr("gradient of the output"), "workspace", s.N * s.K, (s.P, s.Q), found["dy"], plane_name=filters
        ),
        frame.filters("dw", tr("gradient of the filters"), s, "output"),
        U.tensor(tr("U = A dY Aᵀ"), "workspace", U.values.shape[2]),
        V.tensor(tr("V = Bᵀ d B"), "input", V.values.shape[2]),
        Z.tensor(tr("Z = U Vᵀ"), "output", s.C),
        frame.matrix("dY", tr("dY, of filter 0"), "workspace", (of.m, of.m)),
        frame.matrix("d", tr("d, of map 0"), "input", (of.T, of.T)),
    ]


def _dweight_sums(s: ConvShape, of: Tiles, matrices: Sequence[Matrices], parts: int) -> tuple[Sum, ...]:
    U, V, Z = matrices
    t = winograd_matrices.derive(of.m, R)
    a, d, g = terms(tuple(zip(*t.AT, strict=True))), terms(t.BT), terms(tuple(zip(*t.G, strict=True)))
    count, per_image = s.N * len(of), len(of)

    def gradient(p: int, k: int, column: int) -> Terms:
        n, tile = divmod(column, per_image)
        return _pixels(of, a[p], tile, (n * s.K + k) * s.PQ, of.outputs) if column < count else EMPTY

    def pixels(p: int, c: int, column: int) -> Terms:
        n, tile = divmod(column, per_image)
        return _pixels(of, d[p], tile, (n * s.C + c) * s.H * s.W) if column < count else EMPTY

    def taps() -> list[Terms]:
        found = []
        for k in range(s.K):
            for c in range(s.C):
                for tap in range(9):
                    positions, factors = g[8 - tap if s.flip else tap]
                    cells = [Z.cells[part * of.positions + positions, k, c] for part in range(parts)]
                    found.append((np.concatenate(cells), np.tile(factors, parts)))
        return found

    products = [
        (V.cells[p % of.positions, c, :count], U.cells[p % of.positions, k, :count])
        for p in range(len(Z.values))
        for k in range(s.K)
        for c in range(s.C)
    ]
    whole = () if parts > 1 else (sum_of("Z", "V", products, "U"),)
    return (_sum("U", "dy", U, gradient), _sum("V", "x", V, pixels), *whole, sum_of("dw", "Z", taps()))


# -- shared ----------------------------------------------------------------------------------------------
def _pixels(of: Tiles, transform: Terms, tile: int, first: int, squares: np.ndarray | None = None) -> Terms:
    """Returns the pixels, from cell `first` of a plane on, and the factors of one number of a transformed tile."""
    if tile >= len(of):
        return EMPTY
    cells = (of.windows if squares is None else squares)[tile][transform[0]]
    return first + cells[cells >= 0], transform[1][cells >= 0]


def _sum(out: str, right: str, matrices: Matrices, entry) -> Sum:
    """Returns the sums of a workspace: entry(position, row, column) are the terms of a cell."""
    positions, rows, columns = matrices.values.shape
    every = ((p, i, j) for p in range(positions) for i in range(rows) for j in range(columns))
    return sum_of(out, right, [entry(*at) for at in every])


def _products(U: Matrices, V: Matrices, Z: Matrices, depth: int, pair, tiles: int) -> Sum:
    """Returns the sums of Z over `depth` rows of U and V: pair(position, row, column, k) are their cells."""
    positions, rows, columns = Z.values.shape
    inner = np.arange(depth)

    def entry(p: int, i: int, j: int) -> Terms:
        if j >= tiles:
            return EMPTY
        left, right = pair(p, i, j, inner)
        return right, left

    every = ((p, i, j) for p in range(positions) for i in range(rows) for j in range(columns))
    return sum_of("Z", "V", [entry(*at) for at in every], "U")


def _result(out: str, right: str, maps: int, size: int, of: Tiles, inverse: Sequence[Terms], cells) -> Sum:
    """Returns the sums of an image of tiles: cells(positions, map, tile) are those of Z."""
    found: list[Terms] = [EMPTY] * (maps * size)
    for tile, square in enumerate(of.outputs):
        for position, pixel in enumerate(square):
            for c in range(maps if pixel >= 0 else 0):
                found[c * size + pixel] = (cells(inverse[position][0], c, tile), inverse[position][1])
    return sum_of(out, right, found)


def _groups(of: Tiles, in_global: tuple[str, ...], registers: tuple[str, ...]) -> list[Group]:
    title = tr("workspaces: {n} matrices each, one below the other", n=of.positions)
    return [
        Group((in_global,), "global", tr("global memory")),
        Group((registers,), "registers", tr("registers of one thread")),
        Group((("U", "V", "Z"),), "workspace", title),
    ]


def _readings(r: Recorder) -> tuple[Reading, ...]:
    return (Reading(tr("multiplications, U · V"), r.so_far("multiplied"), "predicted"),)


def folded_scene(scene: Scene) -> Scene:
    """Returns either scene with most of its tiles, and most of its positions, as one step."""
    kinds = dinput_kinds(flip=False) if scene.key.startswith(DINPUT) else dweight_kinds(1)
    kind, names = np.asarray(scene.captions.kind), list(kinds)
    pairs = [("turn", "u"), ("tile", "v"), ("dy", "u"), ("x", "v")]
    numbers = [tuple(map(names.index, pair)) for pair in pairs if set(pair) <= set(names)]
    group = kind.copy()
    for first, second in numbers:
        group[kind == second] = first
    single = {names.index("product"), names.index("result") if "result" in names else names.index("taps")}
    runs = [(a, b) for a, b in repeats(group, single)]
    runs += [(a, b - 1) for a, b in repeats(group, {first for first, _ in numbers}) if b - 1 > a]
    return folded(scene, sorted(runs), tr("The next {0} steps are the same."), lambda run: (run[1] - run[0] + 1,))
