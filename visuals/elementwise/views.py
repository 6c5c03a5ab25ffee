# fmt: off
"""What the stage shows of each elementwise kernel. A gradient has the place of its tensor. One warp takes a step, but blocks that add up are
shown block by block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from kernels.elementwise.shape import BITS, BYTES, NCHW, OUTPUT, WORD, BiasShape, MapsShape, ReluShape
from kernels.i18n import mark, tr
from kernels.model.program import Launch, Program
from visuals.scene.compiler.view import STEP, Buffer, Bytes, PerThread, Say, Shared, Shown, Step, View, step
from visuals.scene.parts import Group

ROLES = {
    "x": "input", "a": "input", "b": "filter", "y": "output", "mask": "workspace", "sum": "workspace", "sums": "workspace",
    "dx": "input", "da": "input", "db": "filter", "dy": "output",
}
TITLES = {
    "dx": mark("dx, the gradient of x"),
    "da": mark("da, the gradient of a"),
    "db": mark("db, the gradient of b"),
    "dy": mark("dy, the gradient of y"),
    "mask": mark("mask, what is kept"),
    "sum": mark("a + b, written to memory"),
    "sums": mark("sums of the parts"),
}
# The places of tensors: what the forward pass reads, and its gradient, on the left; y and dy on the right.
PLACES = ("x", "a", "b", "dx", "da", "db"), ("sum", "sums", "mask"), ("dy", "y")
MOVED = (Bytes(mark("bytes read from global memory"), "", "ld"), Bytes(mark("bytes written to global memory"), "", "st"))

# -- one element ---------------------------------------------------------------------------------------------
RELU = mark("[y](output)[{y.at}] = max([x](input), 0) = max({x[y.at]}, 0) = {y}.")
RELU_BYTES = mark("[y](output)[{y.at}] = max([x](input), 0) = max({x[y.at]}, 0) = {y}. The byte [mask](workspace)[{y.at}] becomes {x[y.at] > 0}.")
RELU_BITS = mark("[y](output)[{y.at}] = max([x](input), 0) = max({x[y.at]}, 0) = {y}. Its bit of the [mask](workspace) is {x[y.at] > 0}.")
OF_KEPT = {OUTPUT: RELU, BYTES: RELU_BYTES, BITS: RELU_BITS}
OF_Y = mark("[y](output)[{dx.at}] is {y[dx.at]}. So [dx](input)[{dx.at}] = {dx}, from [dy](output)[{dx.at}] = {dy[dx.at]}.")
OF_MASK = mark("[mask](workspace)[{dx.at}] is {mask[dx.at]}. So [dx](input)[{dx.at}] = {dx}, from [dy](output)[{dx.at}] = {dy[dx.at]}.")
GELU = mark("[y](output)[{y.at}] = [x](input) times the share of normal numbers below it. From {x[y.at]} it becomes {y}.")
SLOPE = mark("[x](input)[{dx.at}] is {x[dx.at]}. So [dx](input)[{dx.at}] = {dx}: [dy](output)[{dx.at}] = {dy[dx.at]}, times the slope at x.")
BIAS = mark("Element {y.at} is in channel {y.at // shape.inner % shape.C}: [y](output)[{y.at}] = [x](input) + [b](filter)[{y.at // shape.inner % shape.C}] = {x[y.at]} + {b} = {y}.")
ADDED = mark("Element {i} is in channel {c}. [dy](output)[{i}] = {dy} is added to [db](filter)[{c}], which is then {db.new}.")
SUM = mark("[sum](workspace)[{i}] = [a](input) + [b](filter) = {a} + {b} = {sum}. It is written to memory.")
OF_SUM = mark("[sum](workspace)[{i}] = {sum} is read again. [y](output)[{i}] = max({sum}, 0) = {y}.")
RESIDUAL = mark("[y](output)[{y.at}] = max([a](input) + [b](filter), 0) = max({a[y.at]} + {b[y.at]}, 0) = {y}. The sum stays in a register.")
OF_DY = mark("[y](output)[{i}] is {y}. So [da](input)[{i}] = {da}, from dy[{i}] = {dy}.")
ACCUMULATE = mark("[da](input)[{i}] = {da} is read again and added to [db](filter)[{i}]: {db} + {da} = {db.new}.")
BOTH = mark("[y](output)[{da.at}] is {y[da.at]} and dy[{da.at}] is {dy[da.at]}. So [da](input)[{da.at}] = {da}. [db](filter)[{da.at}] held {db[da.at]} and becomes {db.new}.")

# What is said of a cell of a result.
Y_OF_X, Y_OF_BOTH = {"y": mark("max({x[cell]}, 0).")}, {"y": mark("max({a[cell]} + {b[cell]}, 0).")}
Y_OF_GELU = {"y": mark("{x[cell]} times the share of normal numbers below it.")}
Y_OF_BIAS = {"y": mark("{x[cell]} + {b[cell // shape.inner % shape.C]}, the bias of its channel.")}
DX_OF_DY, DX_OF_X = {"dx": mark("{dy[cell]} of dy, and 0 where x was not positive.")}, {"dx": mark("{dy[cell]} of dy, times the slope of GELU at x = {x[cell]}.")}
DA_OF_DY = {"da": mark("{dy[cell]} of dy, and 0 where y is not positive: {y[cell]}.")}
DB_OF_DA = {"db": mark("It was {db[cell]}. The gradient {da[cell]} was added to it.")}
BOTH_OF_DY = {**DA_OF_DY, "db": mark("It was {db[cell]}. The gradient {where(y[cell] > 0, dy[cell], 0)} was added to it.")}

# -- one thread per element ------------------------------------------------------------------------------------
WHO = mark("Block {block}, warp {warp}, active lanes: {active}. Each has one element.")
BEYOND = mark("Block {block}, warp {warp}: its lanes are beyond the end. They have no element.")
IDLE = step("return;", Say(BEYOND, "active == 32"), "")
ZERO = step("y[i] = 0.0f",
    Say("Additions need a sum to start from. The first launch sets every [db](filter) to 0.", "block == 0 and warp == 0"), "")
WORDS = {
    "elements": step("float value = ",
        Say(BEYOND, "min(i) >= count"),
        Say("Block {block}, warp {warp}, lanes with an element: {count(x)}. [y](output)[{i}] = max([x](input), 0) = max({x}, 0) = {y}. Its bit of the [mask](workspace) is {x > 0}."),
        to="y[i] = ", cells=Y_OF_X),
    "ballot": step("__ballot_sync",
        Say("", "min(i) >= count"),
        Say("Block {block}, warp {warp}: one instruction gives a word with the bits of all 32 lanes. Lane 0 stores it as word {i // 32} of the [mask](workspace). Positive elements: {sum(value > 0)}.")),
}


def elements(work: Step) -> dict[str, Step]:
    """Returns the steps of a kernel with one thread per element."""
    return {"idle": IDLE, "elements": replace(work, lead=WHO)}


# -- several float4 per thread ---------------------------------------------------------------------------------
LOAD = step("load_four(v[k]",
    Say(BEYOND, "min(first) >= count and k == 0"),
    Say("", "min(first + 4 * BLOCK * k) >= count"),
    Say("Block {block}, warp {warp}: float4 number {visit} of {visits}. Lanes with elements: {sum(first + 4 * BLOCK * k < count)}. They load elements {min(first + 4 * BLOCK * k)} to {max(where(first + 4 * BLOCK * k + 4 < count, first + 4 * BLOCK * k + 3, count - 1))}, 16 bytes each. None is used yet."))
STORED = mark("Block {block}, warp {warp} computes its float4 number {visit} of {visits} and stores it.")


def float4(load: Step, store: Step) -> dict[str, Step]:
    """Returns the steps of a kernel whose threads have several float4."""
    return {"load": load, "store": replace(store, cases=(Say("", "min(first + 4 * BLOCK * k) >= count"), *store.cases), lead=STORED)}


OF_DY_AND = {name: replace(LOAD, at="load_four(v[k], dy", to=to) for name, to in (("kept", "positive[k] = "), ("x", "load_four(at[k]"))}
STEPS: Mapping[tuple[str, str], Mapping[str, Step]] = {  # by kernel and what ReLU keeps; "" in other layers
    ("zero", ""): {"zero": ZERO},
    ("relu", OUTPUT): elements(step("y[i] = ", RELU, cells=Y_OF_X)),
    ("relu", ""): elements(step("y[i] = ", OF_SUM, cells=Y_OF_BOTH)),
    ("relu_bytes", BYTES): elements(step("y[i] = ", RELU_BYTES, cells=Y_OF_X)),
    ("relu_bits", BITS): WORDS,
    **{("relu_float4", keep): float4(LOAD, step("store_four(y", text, cells=Y_OF_X)) for keep, text in OF_KEPT.items()},
    ("relu_backward", OUTPUT): elements(step("float gradient = ", OF_Y, to="dx[i] = ", cells=DX_OF_DY)),
    ("relu_backward", BYTES): elements(step("float gradient = ", OF_MASK, to="dx[i] = ", cells=DX_OF_DY)),
    ("relu_backward", ""): elements(step("float gradient = ", OF_DY, to="dx[i] = ", cells=DA_OF_DY)),
    ("relu_backward_bits", BITS): elements(step("unsigned word = ", OF_MASK, to="dx[i] = ", cells=DX_OF_DY)),
    **{("relu_backward_float4", keep): float4(OF_DY_AND["kept"], step("store_four(dx", text, cells=DX_OF_DY)) for keep, text in ((OUTPUT, OF_Y), (BYTES, OF_MASK), (BITS, OF_MASK))},
    ("gelu", ""): elements(step("y[i] = ", GELU, cells=Y_OF_GELU)),
    ("gelu_float4", ""): float4(LOAD, step("store_four(y", GELU, cells=Y_OF_GELU)),
    ("gelu_backward", ""): elements(step("dx[i] = ", SLOPE, cells=DX_OF_X)),
    ("gelu_backward_float4", ""): float4(OF_DY_AND["x"], step("store_four(dx", SLOPE, cells=DX_OF_X)),
    ("bias", ""): elements(step("y[i] = ", BIAS, cells=Y_OF_BIAS)),
    ("bias_float4", ""): float4(LOAD, step("v[k][j] += b[", BIAS, to="store_four(y", each="k", cells=Y_OF_BIAS)),
    ("bias_backward_atomics", ""): elements(step("atomicAdd(", ADDED)),
    ("add", ""): elements(step("sum[i] = ", SUM)),
    ("residual", ""): elements(step("float sum = ", RESIDUAL, to="y[i] = ", cells=Y_OF_BOTH)),
    ("residual_float4", ""): float4(replace(LOAD, at="load_four(v[k]", to="load_four(w[k]"), step("store_four(y", RESIDUAL, cells=Y_OF_BOTH)),
    ("accumulate", ""): elements(step("db[i] += ", ACCUMULATE, cells=DB_OF_DA)),
    ("residual_backward", ""): elements(step("float gradient = ", BOTH, to="db[i] += ", cells=BOTH_OF_DY)),
    ("residual_backward_float4", ""): float4(replace(LOAD, at="load_four(g[k]", to="load_four(sum[k]"), step("store_four(da", BOTH, to="store_four(db", cells=BOTH_OF_DY)),
}

# -- blocks that add up ------------------------------------------------------------------------------------------
BARRIER = mark("All threads of the block wait at a barrier: the sums of the others must be there before they are read.")
ATOMIC = step("atomicAdd(&db[c]",
    "The tree is done. Threads with a result: {count(db)}. Each adds its sum to [db](filter) by one atomic addition. Channel {c} now has {db.new}.")
OTHERS_ADD = mark("The other blocks do the same with their parts. Each adds its results to [db](filter).")
ROW = step("sums[blockIdx.y",
    "The tree is done. Threads with a result: {count(partial)}. They store row 0 of the [sums](workspace). Channel {c} has {sums}.")
OTHERS_STORE = mark("The other blocks do the same with their parts. Each stores its results in the [sums](workspace).")
TOTAL = step("sums[blockIdx.y", "The tree is done. Threads with a result: {count(partial)}. They store [db](filter). Channel {c} has {db}.")
OTHERS_ZERO = mark("The other blocks set theirs to 0.")
OTHERS_TOTAL = mark("The other blocks do the same with their channels.")
RESULTS = {  # by kernel and target: what stores the results of the first block, and what is said of the others
    ("bias_backward_block", "db"): (ATOMIC, OTHERS_ADD),
    ("bias_backward_sums", "sums"): (ROW, OTHERS_STORE),
    ("bias_backward_sums", "db"): (TOTAL, OTHERS_TOTAL),
    ("bias_backward_streaming", "sums"): (ROW, OTHERS_STORE),
    ("bias_backward_streaming", "db"): (TOTAL, OTHERS_TOTAL),
}


def tree(n: int, result: Step) -> dict[str, Step]:
    """Returns the steps of launch n of a kernel whose blocks add up."""
    inside, acc = "sum_of_block(partial", f"acc{n}"
    return {
        f"start{n}": step("bool active = ", "The first block begins. Each thread sets its [sum](workspace) to 0.", shows={acc: "sum"}),
        f"load{n}": step(("for (int k = 0; k < PER; ++k) {", 0),
            "Round {visit} of {visits}: each active thread loads up to {PER} elements and adds them to its [sum](workspace). Thread {thread} now has {sum}.",
            to="sum += v[k]", inside="sum_of_thread(dy", shows={acc: "sum"}),
        f"store{n}": step("partial[thread] = sum;", "Each thread stores its [sum](workspace) in shared memory. Thread {thread} stores {sum}.", inside=inside),
        f"barrier{n}": step(("__syncthreads()", 0), BARRIER, inside=inside),
        f"level{n}": step("partial[thread] += ",
            "Level {visit} of the tree: thread t of a channel adds the sum of thread t + {half}. Threads that add: {count(partial)}. [partial](workspace)[{thread}] is now {partial.new}.",
            inside=inside),
        f"wait{n}": step(("__syncthreads()", 1), BARRIER, inside=inside),
        f"result{n}": result,
    }


# -- views -----------------------------------------------------------------------------------------------------
IN_LINES = mark("one row per channel, one column per thread")
PLANES = mark("one plane per level, all in the same cells of shared memory")
ONE_BLOCK = mark("one register of each thread"), mark("shared memory of the block")


def of_threads(n: int, launch: Launch) -> tuple[Shown, Shown]:
    """Returns the registers and the shared memory of the first block of launch n."""
    columns = int(str(launch.args[3]))
    lines, part = (f"{{}} % {columns}", f"{{}} // {columns}"), (range(columns), range(prod(launch.block) // columns))
    kinds = tuple(f"{kind}{n}" for kind in ("store", "barrier", "level", "wait", "result"))
    return (
        PerThread(f"acc{n}", "workspace", mark("sum"), IN_LINES, "sum", place=(lines[0].format("where(block == 0, thread, -1)"), lines[1].format("thread")), part=part),
        Shared(f"partial{n}", "workspace", mark("partial"), PLANES, "partial", of="partial", rows=(f"level{n}",), during=kinds, place=("where(block == 0, 0, -1)", *(text.format("cell") for text in lines)), part=(range(1), *part), plane=mark("level")),
    )


def view_of(program: Program, s: MapsShape) -> View:
    """Returns the view of a program of one of the ladders."""
    keep = s.keep if isinstance(s, ReluShape) else ""
    sums = [n for n, launch in enumerate(program.launches) if (launch.entry, str(launch.args[1])) in RESULTS]
    launches, others = [], []
    for n, launch in enumerate(program.launches):
        result, text = RESULTS.get((launch.entry, str(launch.args[1])), (None, OTHERS_ZERO))
        launches.append(tree(n, result) if result else STEPS[launch.entry, keep])
        others.append(text)
    names = [b.name for b in program.buffers]
    rows = (tuple(name for name in place if name in names) for place in PLACES)
    per_block = [of_threads(n, program.launches[n]) for n in sums]
    groups = (Group(tuple((pair[at].name,) for pair in per_block), space, ONE_BLOCK[at]) for at, space in enumerate(("registers", "shared")))
    return View(
        (*(_buffer(name, s) for name in names), *(shown for pair in per_block for shown in pair)),
        (Group(tuple(filter(None, rows)), "global", mark("global memory")), *(groups if sums else ())),
        tuple(launches), MOVED, group=0 if sums else 32, others=tuple(others), step_name=STEP if sums else mark("warp"),
    )


def _buffer(name: str, s: MapsShape) -> Buffer:
    """Returns a buffer as a tensor: maps of P rows and Q columns, or one row per pixel if the channels are neighbours."""
    shown = Buffer(name, ROLES[name], TITLES.get(name, name), tr("N = {N}, C = {C}, {P} × {Q}", N=s.N, C=s.C, P=s.P, Q=s.Q), plane=mark("map"))
    flat = replace(shown, plane="")
    if name == "sums":
        return replace(flat, note=mark("one row per part"))
    if isinstance(s, BiasShape) and name in ("b", "db"):
        return replace(flat, note=mark("one number per channel"))
    if isinstance(s, BiasShape) and s.layout != NCHW:
        return replace(flat, note=mark("one row per pixel"), shape=(s.N * s.P * s.Q, s.C))
    if isinstance(s, ReluShape) and name == "mask" and s.keep == BITS:
        return replace(flat, note=mark("one row per word of 32 bits"), dtype="bit", shape=(s.words, WORD))
    return shown
