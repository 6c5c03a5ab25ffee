# fmt: off
"""What the stage shows of one tile and one filter in Winograd's kernels: a column or a row of a transform at a time, as one thread
computes them."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.conv.winograd_cpu import R
from kernels.i18n import mark
from visuals.conv.winograd.fused_views import square
from visuals.conv.winograd.views import FIRST_HALF, SECOND_HALF, counted
from visuals.scene.compiler.view import Buffer, Say, Step, View, every, step
from visuals.scene.parts import Group

ORDER = mark("row by row")
ORDER_NOTE = mark("The stage shows one tile, one filter and one channel. One thread of “Winograd in steps” computes a column of a transform after the other, then a row after the other. The fused kernels call the same function, transform_2d. On the GPU many threads run at once.")
MATRICES = ("G", "G", "filter"), ("BT", "Bᵀ", "input"), ("AT", "Aᵀ", "output")  # name, symbol, role


def columns(kind: str, call: str, text: str) -> Mapping[str, Step]:
    return {kind: step(FIRST_HALF, text, to="Xd[i][j] = first", inside=call, lit=call, each="j", shows={kind: "Xd"})}


def rows(kind: str, call: str, last: int, text: str, at_last: str) -> Mapping[str, Step]:
    """Returns the steps of the second half. `at_last`: what is said of its last row."""
    return {kind: step(SECOND_HALF, Say(at_last, f"i == {last}"), text, to="Y[i][j] = first", inside=call, lit=call, each="i")}


def nested_view(m: int) -> View:
    """Returns the view of one tile through winograd-nonfused. The matrices G, Bᵀ and Aᵀ are constants and not in it."""
    T, first = m + R - 1, "thread + block"
    of_filter, of_tile, of_sums = "transform_2d(G, g, u)", "transform_2d(BT, d, v)", "transform_2d(AT, z, out)"
    filters = {
        "g": step("g[i / 3][i % 3]", "Launch 1: a thread copies the 9 taps of the [filter](filter) to [g](filter).", merge=True),
        **columns("Gg", of_filter, mark("Launch 1: column {j} of [Gg](filter) is G · column {j} of [g](filter).")),
        **rows("U", of_filter, T - 1,
            mark("Launch 1: row {i} of [U](filter) is row {i} of [Gg](filter) · Gᵀ, as in one dimension."),
            mark("Launch 1: row {i} of [U](filter) is row {i} of [Gg](filter) · Gᵀ. Both halves take {filter_additions} additions and {filter_multiplications} multiplications.")),
        "store": step("U[(size_t)position", "", merge=True),
    }
    tile = {
        "d": step("load_tile(input, shape", "Launch 2: a thread loads a tile of {T} × {T} pixels of the [input](input) to [d](input).", merge=True),
        **columns("Bd", of_tile, mark("Launch 2: column {j} of [Bᵀd](input) is Bᵀ · column {j} of [d](input).")),
        **rows("V", of_tile, T - 1,
            mark("Launch 2: row {i} of [V](input) is row {i} of [Bᵀd](input) · B."),
            mark("Launch 2: row {i} of [V](input) is row {i} of [Bᵀd](input) · B. Both halves take {input_additions} additions and {input_multiplications} multiplications.")),
        "store": step("V[(size_t)position", "", merge=True),
    }
    product = {
        "Z": step("copy_async<16>(&tile_u[", "Launch 3: each value of [U](filter) is multiplied by the value of [V](input) at the same place, in a block of its own. Here it is the first.", to="*(float4*)&Z[(size_t)k * v_length", merge=True),
    }
    back = {
        "gather": step("z[position / T][position % T] =", "", merge=True),
        **columns("AZ", of_sums, mark("Launch 4: column {j} of [AᵀZ](output) is Aᵀ · column {j} of [Z](output).")),
        **rows("y", of_sums, m - 1,
            mark("Launch 4: row {i} of [y](output) is row {i} of [AᵀZ](output) · A."),
            mark("Launch 4: row {i} of [y](output) is row {i} of [AᵀZ](output) · A. Both halves take {output_additions} additions and {output_multiplications} multiplications.")),
        "store": step("store_tile(output, shape", "", merge=True),
    }
    tensors = (
        square("g", "filter", "g", "g", (R, R), first, "g"), square("Gg", "filter", "Gg", "Xd", (T, R), first, "Gg", "U"), square("U", "filter", "U = Gg Gᵀ", "u", (T, T), first, "U"),
        square("d", "input", "d", "d", (T, T), first, "d"), square("Bd", "input", "Bᵀd", "Xd", (T, T), first, "Bd", "V"), square("V", "input", "V = Bᵀd B", "v", (T, T), first, "V"),
        Buffer("Z", "output", "Z = U · V", **every(0, 4, (T, T))), square("AZ", "output", "AᵀZ", "Xd", (m, T), first, "AZ", "y"), square("y", "output", "y = AᵀZ A", "out", (m, m), first, "y"),
    )
    others = mark("Launch 3: the other blocks ({others}) multiply the other values. These are {T * T} multiplications in all; direct convolution takes {9 * M * M}.")
    return View(
        tensors, (Group((tuple(tensor.name for tensor in tensors),)),), (filters, tile, product, back), names={"T": "M + 2"} | counted(m),
        others=("", "", others, ""), step_name=mark("row"), order=(ORDER, ORDER_NOTE),
    )
