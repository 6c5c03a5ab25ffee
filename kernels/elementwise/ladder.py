"""Elementwise layers and their gradients: ReLU, GELU, bias, and the addition at the end of a residual block.

relu               y = max(x, 0); what is kept for the backward pass: y, a mask of bytes, a mask of bits.
relu-backward      dx from dy and what was kept.
gelu               y = x times the share of normal numbers below x: by erf, or by tanh.
gelu-backward      dx from dy and x.
bias               y = x + b, one number per channel.
bias-backward      db, a sum over everything but the channel: atomics, block sums, two launches.
residual           y = max(a + b, 0).
residual-backward  the same gradient for a and b; that of b is added to one that exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from kernels.elementwise import cpu, library, reference
from kernels.elementwise.presets import mlp_presets, presets, row_presets
from kernels.elementwise.reference import GELU_TOLERANCE, SUM_TOLERANCE, TOLERANCE
from kernels.elementwise.shape import (
    BITS,
    BYTES,
    FORMS,
    KEPT,
    OUTPUT,
    TANH,
    BiasBackwardShape,
    BiasShape,
    GeluBackwardShape,
    GeluShape,
    MapsShape,
    ReluBackwardShape,
    ReluShape,
    ResidualBackwardShape,
    ResidualShape,
    parser,
)
from kernels.i18n import mark, tr
from kernels.libraries import torch as torch_library
from kernels.model import program as model
from kernels.model.fast_division import magic
from kernels.model.launch import ceil, launch, rung_factory
from kernels.model.program import INPUT, WORKSPACE, Arg, Buffer, LibraryCall, Program, Tiles
from kernels.model.revealing import concentrate_sums
from kernels.model.rules import MAX_GRID_YZ, index_rules
from kernels.model.rung import Cost, Ladder, Rung
from kernels.model.shape import S
from kernels.model.zero import zero

BLOCKS = {"BLOCK": (256, 128, 512, 64, 32)}
WIDE = BLOCKS | {"PER": (4, 2, 8, 1)}  # float4 of a thread
SUMS = BLOCKS | {"PER": (8, 4, 16, 2)}  # elements of a thread that are loaded at once
ONE = {"BLOCK": (128, 256, 512, 64, 32)}  # threads with one float4 each: the fastest first
SMALL, WIDE_SMALL, SUMS_SMALL = {"BLOCK": 32}, {"BLOCK": 32, "PER": 1}, {"BLOCK": 32, "PER": 2}
MAX_COLUMNS = 64  # channels of a block whose threads read along the channels
FINAL_COLUMNS = 8  # of the launch that adds up the sums of the parts
PARTS = 1056  # blocks that one launch of sums has about: 8 for each of 132 SMs
CHANNELS = np.dtype(
    [("C", "i4"), ("inner", "i4")]
    + [(f"{name}_{by}", kind) for by in ("C", "inner") for name, kind in (("multiplier", "u4"), ("shift", "i4"))]
)  # Channels in cuda/channels.cuh
SAME_ON_CPU = mark(
    "a processor’s loads have no such width in NumPy; without it this is the rung with one thread per element"
)


def cost(s: MapsShape, program: Program) -> Cost:
    """Returns the cost: the bytes of each launch's own reads and writes, and the workspace."""
    workspace = program.nbytes(WORKSPACE)
    return Cost(s.flops, s.bytes + 2 * workspace, workspace)


def library_cost(s: MapsShape, program: Program) -> Cost:
    return Cost(s.flops, s.bytes, None)


def rules(s: MapsShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rule on the elements: a thread's last index may be that many elements beyond the end."""
    yield from index_rules({"N*C*P*Q": s.elements}, tiles["BLOCK"] * tiles.get("PER", 1) * 4)


def no_rules(s: MapsShape, tiles: Tiles) -> tuple[str, ...]:
    return ()


def only_y(s: ReluShape, tiles: Tiles) -> Iterator[str]:
    if s.keep != OUTPUT:
        yield tr("keep must be {keep}: PyTorch’s ReLU keeps nothing else, got {got}", keep=OUTPUT, got=s.keep)


def _scalar(source: str, s: MapsShape, tiles: Tiles, buffers: tuple[Arg, ...], function, **defines: int):
    """Returns a launch with one thread per element."""
    grid = (ceil(s.elements, tiles["BLOCK"]),)
    args = *buffers, np.int32(s.elements)
    return launch(
        f"elementwise/{source}.cu", grid, tiles["BLOCK"], args, function, {"BLOCK": tiles["BLOCK"], **defines}
    )


def _wide(source: str, s: MapsShape, tiles: Tiles, args: tuple, function, **defines: int):
    """Returns a launch whose threads compute PER float4 each."""
    grid = (ceil(s.elements, 4 * tiles["BLOCK"] * tiles["PER"]),)
    args = *args, np.int32(s.elements)
    return launch(f"elementwise/{source}.cu", grid, tiles["BLOCK"], args, function, {**tiles, **defines})


def _single(build: Callable[[S, Tiles], Program]) -> Callable[[S, Tiles], Program]:
    """Returns the builder of a rung whose threads compute one float4 each."""
    return lambda s, tiles: build(s, {**tiles, "PER": 1})


ONE_TITLE = mark("one float4 per thread")
ONE_IDEA = mark(
    "Four times as many threads, each with one load of 16 bytes. The multiprocessor keeps as many bytes in flight, from more warps."
)


def _torch(ladder: str, title: str, idea: str, buffers, bind, rule=no_rules, tolerance=TOLERANCE) -> Rung:
    """Returns the rung of one call of PyTorch on the buffers; `bind` gets the layout or the form too if the shape has one."""

    def build(s: MapsShape, tiles: Tiles) -> Program:
        found = buffers(s)
        option = getattr(s, "layout", getattr(s, "form", ""))
        args = *(b.name for b in found), *([np.bytes_(option.encode())] if option else ())
        return Program(found, (LibraryCall(f"torch_{ladder.replace('-', '_')}", args, None, bind),))

    return Rung(
        f"{ladder}/library",
        title,
        idea,
        build,
        library_cost,
        rule,
        tolerance,
        library="PyTorch",
        find_library=lambda: torch_library.find(),
        engines=("cuda",),
    )


# -- ReLU ------------------------------------------------------------------------------------------
def mask_buffer(s: ReluShape, role: str) -> Buffer:
    words = Buffer("mask", role, (s.words,), "uint32")
    return words if s.keep == BITS else Buffer("mask", role, s.maps, "uint8", below=2)


def relu_buffers(s: ReluShape) -> tuple[Buffer, ...]:
    mask = () if s.keep == OUTPUT else (mask_buffer(s, model.OUTPUT),)
    return Buffer("x", INPUT, s.maps), Buffer("y", model.OUTPUT, s.maps), *mask


_RELU = {OUTPUT: ("01_relu", cpu.relu), BYTES: ("02_relu_bytes", cpu.relu_bytes), BITS: ("03_relu_bits", cpu.relu_bits)}


def build_relu(s: ReluShape, tiles: Tiles) -> Program:
    source, function = _RELU[s.keep]
    buffers = relu_buffers(s)
    return Program(buffers, (_scalar(source, s, tiles, tuple(b.name for b in buffers), function),))


def build_relu_float4(s: ReluShape, tiles: Tiles) -> Program:
    buffers, names = relu_buffers(s), tuple(b.name for b in relu_buffers(s))
    step = _wide("04_relu_float4", s, tiles, names, _RELU[s.keep][1], KEEP=KEPT.index(s.keep))
    return Program(buffers, (step,))


RELU_RUNG = rung_factory("relu", cost, TOLERANCE)
RELU = Ladder(
    name="relu",
    shape=ReluShape,
    parse=parser(ReluShape),
    reference=reference.relu,
    presets=presets("relu", ReluShape, bytes={"keep": BYTES}, bits={"keep": BITS}),
    swept=("relu-res2-n64",),
    rungs=(
        RELU_RUNG(
            "scalar",
            mark("one thread per element"),
            mark("Each thread computes one element. A mask of bits is packed by 32 lanes in one instruction."),
            build_relu,
            rules,
            BLOCKS,
            SMALL,
            cpu_title=mark("ReLU"),
        ),
        RELU_RUNG(
            "float4",
            mark("float4, several per thread"),
            mark("A thread loads several float4 (16 bytes) before it uses the first."),
            build_relu_float4,
            rules,
            WIDE,
            WIDE_SMALL,
            not_on_cpu=SAME_ON_CPU,
        ),
        RELU_RUNG(
            "one-float4", ONE_TITLE, ONE_IDEA, _single(build_relu_float4), rules, ONE, SMALL, not_on_cpu=SAME_ON_CPU
        ),
        _torch(
            "relu",
            mark("PyTorch ReLU"),
            mark("torch.clamp_min(x, 0), which torch.relu calls."),
            relu_buffers,
            library.Relu,
            only_y,
        ),
    ),
)


def relu_backward_buffers(s: ReluShape) -> tuple[Buffer, ...]:
    kept = Buffer("y", INPUT, s.maps) if s.keep == OUTPUT else mask_buffer(s, INPUT)
    return Buffer("dy", INPUT, s.maps), kept, Buffer("dx", model.OUTPUT, s.maps)


def kept_of(s: ReluShape, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns what ReLU kept. x is given the values of dy, last first: seeded numbers that differ from dy."""
    x = inputs["dy"].ravel()[::-1].reshape(s.maps)
    return {"y": np.maximum(x, np.float32(0))} if s.keep == OUTPUT else {"mask": reference.mask_of(s, x)}


def build_relu_backward(s: ReluShape, tiles: Tiles) -> Program:
    buffers = relu_backward_buffers(s)
    names = tuple(b.name for b in buffers)
    if s.keep == BITS:
        step = _scalar("06_relu_backward_bits", s, tiles, names, cpu.relu_backward_bits)
    else:
        step = _scalar("05_relu_backward", s, tiles, names, cpu.relu_backward, KEEP=KEPT.index(s.keep))
    return Program(buffers, (step,))


def build_relu_backward_float4(s: ReluShape, tiles: Tiles) -> Program:
    buffers, function = (relu_backward_buffers(s), cpu.relu_backward_bits if s.keep == BITS else cpu.relu_backward)
    names = tuple(b.name for b in buffers)
    step = _wide("07_relu_backward_float4", s, tiles, names, function, KEEP=KEPT.index(s.keep))
    return Program(buffers, (step,))


RELU_BACKWARD_RUNG = rung_factory("relu-backward", cost, TOLERANCE)
RELU_BACKWARD = Ladder(
    name="relu-backward",
    shape=ReluBackwardShape,
    parse=parser(ReluBackwardShape),
    reference=reference.relu_backward,
    derive=kept_of,
    presets=presets("relu-backward", ReluBackwardShape, bytes={"keep": BYTES}, bits={"keep": BITS}),
    swept=("relu-backward-res2-n64",),
    rungs=(
        RELU_BACKWARD_RUNG(
            "scalar",
            mark("one thread per element"),
            mark("dx = dy where x was positive. Of a mask of bits, all lanes of a warp read one word."),
            build_relu_backward,
            rules,
            BLOCKS,
            SMALL,
            cpu_title=mark("gradient of ReLU"),
        ),
        RELU_BACKWARD_RUNG(
            "float4",
            mark("float4, several per thread"),
            mark("A thread loads several float4 of dy, and what was kept of them, before it uses the first."),
            build_relu_backward_float4,
            rules,
            WIDE,
            WIDE_SMALL,
            not_on_cpu=SAME_ON_CPU,
        ),
        RELU_BACKWARD_RUNG(
            "one-float4",
            ONE_TITLE,
            ONE_IDEA,
            _single(build_relu_backward_float4),
            rules,
            ONE,
            SMALL,
            not_on_cpu=SAME_ON_CPU,
        ),
        _torch(
            "relu-backward",
            mark("PyTorch’s gradient of ReLU"),
            mark("threshold_backward, which PyTorch’s autograd calls. It reads y."),
            relu_backward_buffers,
            library.ReluBackward,
            only_y,
        ),
    ),
)


# -- GELU ------------------------------------------------------------------------------------------
def gelu_buffers(s: GeluShape) -> tuple[Buffer, ...]:
    return Buffer("x", INPUT, s.maps), Buffer("y", model.OUTPUT, s.maps)


def gelu_backward_buffers(s: GeluShape) -> tuple[Buffer, ...]:
    return *(Buffer(name, INPUT, s.maps) for name in ("dy", "x")), Buffer("dx", model.OUTPUT, s.maps)


def _gelu(source: str, launch_of: Callable, buffers_of: Callable, function: Callable) -> Callable:
    """Returns the builder of a rung: one launch in the form of the shape."""

    def build(s: GeluShape, tiles: Tiles) -> Program:
        names = tuple(b.name for b in buffers_of(s))
        step = launch_of(source, s, tiles, names, function(s.form), FORM=FORMS.index(s.form))
        return Program(buffers_of(s), (step,))

    return build


GELU_RUNG = rung_factory("gelu", cost, GELU_TOLERANCE)
GELU = Ladder(
    name="gelu",
    shape=GeluShape,
    parse=parser(GeluShape),
    reference=reference.gelu,
    presets=presets("gelu", GeluShape, tanh={"form": TANH}) | mlp_presets("gelu", GeluShape, tanh={"form": TANH}),
    swept=("gelu-gpt2",),
    rungs=(
        GELU_RUNG(
            "scalar",
            mark("one thread per element"),
            mark("Each thread computes one element: an erf or a tanh, and a product."),
            _gelu("19_gelu", _scalar, gelu_buffers, cpu.Gelu),
            rules,
            BLOCKS,
            SMALL,
            cpu_title=mark("GELU, a few elements at a time"),
        ),
        GELU_RUNG(
            "float4",
            mark("float4, several per thread"),
            mark("A thread loads several float4 (16 bytes) before it uses the first."),
            _gelu("20_gelu_float4", _wide, gelu_buffers, cpu.Gelu),
            rules,
            WIDE,
            WIDE_SMALL,
            not_on_cpu=SAME_ON_CPU,
        ),
        GELU_RUNG(
            "one-float4",
            ONE_TITLE,
            ONE_IDEA,
            _single(_gelu("20_gelu_float4", _wide, gelu_buffers, cpu.Gelu)),
            rules,
            ONE,
            SMALL,
            not_on_cpu=SAME_ON_CPU,
        ),
        _torch(
            "gelu",
            mark("PyTorch GELU"),
            mark("torch.nn.functional.gelu: exact, or approximated by tanh."),
            gelu_buffers,
            library.Gelu,
            tolerance=GELU_TOLERANCE,
        ),
    ),
)

GELU_BACKWARD_RUNG = rung_factory("gelu-backward", cost, GELU_TOLERANCE)
GELU_BACKWARD = Ladder(
    name="gelu-backward",
    shape=GeluBackwardShape,
    parse=parser(GeluBackwardShape),
    reference=reference.gelu_backward,
    presets=presets("gelu-backward", GeluBackwardShape, tanh={"form": TANH})
    | mlp_presets("gelu-backward", GeluBackwardShape, tanh={"form": TANH}),
    swept=("gelu-backward-gpt2",),
    rungs=(
        GELU_BACKWARD_RUNG(
            "scalar",
            mark("one thread per element"),
            mark("dx = dy times the slope of GELU at x. The slope is computed again from x."),
            _gelu("21_gelu_backward", _scalar, gelu_backward_buffers, cpu.GeluBackward),
            rules,
            BLOCKS,
            SMALL,
            cpu_title=mark("gradient of GELU, a few elements at a time"),
        ),
        GELU_BACKWARD_RUNG(
            "float4",
            mark("float4, several per thread"),
            mark("A thread loads several float4 of dy and of x before it uses the first."),
            _gelu("22_gelu_backward_float4", _wide, gelu_backward_buffers, cpu.GeluBackward),
            rules,
            WIDE,
            WIDE_SMALL,
            not_on_cpu=SAME_ON_CPU,
        ),
        GELU_BACKWARD_RUNG(
            "one-float4",
            ONE_TITLE,
            ONE_IDEA,
            _single(_gelu("22_gelu_backward_float4", _wide, gelu_backward_buffers, cpu.GeluBackward)),
            rules,
            ONE,
            SMALL,
            not_on_cpu=SAME_ON_CPU,
        ),
        _torch(
            "gelu-backward",
            mark("PyTorch’s gradient of GELU"),
            mark("gelu_backward, which PyTorch’s autograd calls. It reads x."),
            gelu_backward_buffers,
            library.GeluBackward,
            tolerance=GELU_TOLERANCE,
        ),
    ),
)


# -- bias ------------------------------------------------------------------------------------------
def struct(C: int, inner: int) -> np.generic:
    """Returns the kernels' argument on the channels of a tensor [outer, C, inner]."""
    by_C, by_inner = magic(C), magic(inner)
    return np.array([(C, inner, by_C.multiplier, by_C.shift, by_inner.multiplier, by_inner.shift)], CHANNELS)[0]


def bias_buffers(s: BiasShape) -> tuple[Buffer, ...]:
    return Buffer("x", INPUT, s.maps), Buffer("b", INPUT, (s.C,)), Buffer("y", model.OUTPUT, s.maps)


def build_bias(s: BiasShape, tiles: Tiles) -> Program:
    args = "x", "b", "y", struct(s.C, s.inner)
    return Program(bias_buffers(s), (_scalar("08_bias", s, tiles, args, cpu.bias),))


def build_bias_float4(s: BiasShape, tiles: Tiles) -> Program:
    args = "x", "b", "y", struct(s.C, s.inner)
    return Program(bias_buffers(s), (_wide("09_bias_float4", s, tiles, args, cpu.bias),))


BIAS_RUNG = rung_factory("bias", cost, TOLERANCE)
BIAS = Ladder(
    name="bias",
    shape=BiasShape,
    parse=parser(BiasShape),
    reference=reference.bias,
    presets=presets("bias", BiasShape, nhwc={"layout": "nhwc"}) | row_presets("bias", BiasShape),
    swept=("bias-res2-n64", "bias-gpt2"),
    rungs=(
        BIAS_RUNG(
            "scalar",
            mark("one thread per element"),
            mark("Each thread finds the channel of its element by multiplications instead of divisions."),
            build_bias,
            rules,
            BLOCKS,
            SMALL,
            cpu_title=mark("bias"),
        ),
        BIAS_RUNG(
            "float4",
            mark("float4, several per thread"),
            mark(
                "A thread loads several float4 (16 bytes) before it uses the first. Each element has its own channel."
            ),
            build_bias_float4,
            rules,
            WIDE,
            WIDE_SMALL,
            not_on_cpu=SAME_ON_CPU,
        ),
        _torch(
            "bias",
            mark("PyTorch addition"),
            mark("torch.add with b broadcast over the maps."),
            bias_buffers,
            library.Bias,
        ),
    ),
)


def bias_backward_buffers(s: BiasShape) -> tuple[Buffer, ...]:
    return Buffer("dy", INPUT, s.maps), Buffer("db", model.OUTPUT, (s.C,))


def columns_of(s: BiasShape, block: int) -> int:
    """Returns the channels of a block: one if a channel's elements are neighbours, else equal shares of C."""
    if s.inner > 1:
        return 1
    return ceil(s.C, ceil(s.C, min(MAX_COLUMNS, block)))


def part_of(s: BiasShape, tiles: Tiles) -> int:
    """Returns how many indices (n, p, q) a block adds up: whole iterations of its threads, and about BLOCKS blocks in
    all, or PARTS if that is no tile size."""
    columns = columns_of(s, tiles["BLOCK"])
    per_iteration = tiles["BLOCK"] // columns * tiles["PER"]
    parts = max(1, min(tiles.get("BLOCKS", PARTS) // ceil(s.C, columns), MAX_GRID_YZ))
    return per_iteration * ceil(ceil(s.per_channel, parts), per_iteration)


def _sums(source, names, s, tiles, function, columns: int, inner: int, count: int, part: int, label: str = ""):
    args = *names, struct(s.C, inner), *(np.int32(v) for v in (columns, count, part))
    grid = ceil(s.C, columns), ceil(count, part)
    defines = {name: tiles[name] for name in SUMS}
    step = launch(f"elementwise/{source}.cu", grid, tiles["BLOCK"], args, function, defines)
    return replace(step, label=label)


def build_atomics(s: BiasShape, tiles: Tiles) -> Program:
    args = "dy", "db", struct(s.C, s.inner)
    steps = zero("db", s.C), _scalar("10_bias_backward_atomics", s, tiles, args, cpu.bias_backward_atomics)
    return Program(bias_backward_buffers(s), steps)


def build_block(s: BiasShape, tiles: Tiles) -> Program:
    columns, part = columns_of(s, tiles["BLOCK"]), part_of(s, tiles)
    step = _sums(
        "11_bias_backward_block", ("dy", "db"), s, tiles, cpu.bias_backward_block, columns, s.inner, s.per_channel, part
    )
    return Program(bias_backward_buffers(s), (zero("db", s.C), step))


def _two_launches(source: str, label: str = "") -> Callable[[BiasShape, Tiles], Program]:
    """Returns the builder of two launches of a kernel. `label` is before the names of both."""

    def build(s: BiasShape, tiles: Tiles) -> Program:
        """Returns two launches of one kernel: dy to a sum per part, then these sums to db."""
        columns, part = columns_of(s, tiles["BLOCK"]), part_of(s, tiles)
        parts, function = ceil(s.per_channel, part), cpu.bias_backward_sums
        steps = (
            _sums(source, ("dy", "sums"), s, tiles, function, columns, s.inner, s.per_channel, part, label=label + PART_SUMS),
            _sums(source, ("sums", "db"), s, tiles, function, min(FINAL_COLUMNS, s.C), 1, parts, parts, label=label + TOTALS),
        )  # fmt: skip
        return Program((*bias_backward_buffers(s), Buffer("sums", WORKSPACE, (parts, s.C))), steps)

    return build


PART_SUMS, TOTALS = "sums of parts", "sums of sums"
BIAS_BACKWARD_RUNG = rung_factory("bias-backward", cost, SUM_TOLERANCE)


def revealing_sums(s: BiasBackwardShape, random: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Returns dy with each channel's weight on a part of its elements: one that is left out shows."""
    for dy in random.values():
        concentrate_sums(cpu.channels_of(dy, {"C": s.C, "inner": s.inner}))
    return random


BIAS_BACKWARD = Ladder(
    name="bias-backward",
    shape=BiasBackwardShape,
    parse=parser(BiasBackwardShape),
    reference=reference.bias_backward,
    revealing=revealing_sums,
    presets=presets("bias-backward", BiasBackwardShape, nhwc={"layout": "nhwc"})
    | row_presets("bias-backward", BiasBackwardShape),
    swept=("bias-backward-res2-n64", "bias-backward-gpt2"),
    rungs=(
        BIAS_BACKWARD_RUNG(
            "atomics",
            mark("one atomic addition per element"),
            mark("Each thread adds its element to db[c]. The additions to one address come one after another."),
            build_atomics, rules, BLOCKS, SMALL, cpu_title=mark("element after element"),
        ),
        BIAS_BACKWARD_RUNG(
            "block",
            mark("block sums, then atomics"),
            mark("A block adds up its part in registers and shared memory. Its result is one atomic addition."),
            build_block, rules, SUMS, SUMS_SMALL, cpu_title=mark("part after part, added to db"), cpu_tiles=("BLOCK", "PER"),
        ),
        BIAS_BACKWARD_RUNG(
            "two-launches",
            mark("two launches, no atomics"),
            mark("The first launch stores a sum per part, the second adds these up. Every run gives the same bits."),
            _two_launches("12_bias_backward_sums"), rules, SUMS, SUMS_SMALL,
            cpu_title=mark("sums of parts, then their sum"), cpu_tiles=("BLOCK", "PER"),
        ),
        BIAS_BACKWARD_RUNG(
            "streaming",
            mark("two launches, streaming loads"),
            mark(
                "Loads marked as streaming leave the L2 first. Lines that an earlier kernel wrote stay there and need "
                "not be written to memory meanwhile."
            ),
            _two_launches("23_bias_backward_streaming", "streaming "), rules, SUMS | {"BLOCKS": (PARTS, 528, 264, 2112)}, SUMS_SMALL,
            not_on_cpu=mark("a processor’s caches take no such hint from NumPy; without it these are sums of parts"),
        ),
        _torch(
            "bias-backward", mark("PyTorch sum"), mark("torch.sum over every axis but the channel’s."),
            bias_backward_buffers, library.BiasBackward, tolerance=SUM_TOLERANCE,
        ),
    ),
)  # fmt: skip


# -- residual --------------------------------------------------------------------------------------
def residual_buffers(s: MapsShape) -> tuple[Buffer, ...]:
    return Buffer("a", INPUT, s.maps), Buffer("b", INPUT, s.maps), Buffer("y", model.OUTPUT, s.maps)


def build_add_relu(s: MapsShape, tiles: Tiles) -> Program:
    steps = (
        _scalar("13_add", s, tiles, ("a", "b", "sum"), cpu.add),
        _scalar("01_relu", s, tiles, ("sum", "y"), cpu.relu),
    )
    return Program((*residual_buffers(s), Buffer("sum", WORKSPACE, s.maps)), steps)


def build_residual(s: MapsShape, tiles: Tiles) -> Program:
    return Program(residual_buffers(s), (_scalar("14_residual", s, tiles, ("a", "b", "y"), cpu.residual),))


def build_residual_float4(s: MapsShape, tiles: Tiles) -> Program:
    return Program(residual_buffers(s), (_wide("15_residual_float4", s, tiles, ("a", "b", "y"), cpu.residual),))


RESIDUAL_RUNG = rung_factory("residual", cost, TOLERANCE)
RESIDUAL = Ladder(
    name="residual",
    shape=ResidualShape,
    parse=parser(ResidualShape),
    reference=reference.residual,
    presets=presets("residual", ResidualShape),
    swept=("residual-res2-n64",),
    rungs=(
        RESIDUAL_RUNG(
            "two-launches",
            mark("addition, then ReLU"),
            mark("Two launches. The sum is written to memory and read again."),
            build_add_relu,
            rules,
            BLOCKS,
            SMALL,
            cpu_title=mark("addition, then ReLU"),
        ),
        RESIDUAL_RUNG(
            "scalar",
            mark("one thread per element"),
            mark("One launch. The sum stays in a register until ReLU is applied to it."),
            build_residual,
            rules,
            BLOCKS,
            SMALL,
            cpu_title=mark("addition and ReLU, a few elements at a time"),
        ),
        RESIDUAL_RUNG(
            "float4",
            mark("float4, several per thread"),
            mark("A thread loads several float4 of a and b before it adds the first."),
            build_residual_float4,
            rules,
            WIDE,
            WIDE_SMALL,
            not_on_cpu=SAME_ON_CPU,
        ),
        _torch(
            "residual",
            mark("PyTorch, eager"),
            mark("torch.add, then clamp_min in place: two launches."),
            residual_buffers,
            library.Residual,
        ),
    ),
)


def residual_backward_buffers(s: MapsShape) -> tuple[Buffer, ...]:
    dy, y = (Buffer(name, INPUT, s.maps) for name in ("dy", "y"))
    return dy, y, Buffer("da", model.OUTPUT, s.maps), Buffer("db", INPUT, s.maps, in_place=True)


def output_of(s: MapsShape, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns y, a result of the forward pass: about half of it is 0. It follows from dy, last first."""
    return {"y": np.maximum(inputs["dy"].ravel()[::-1].reshape(s.maps), np.float32(0))}


def build_mask_accumulate(s: MapsShape, tiles: Tiles) -> Program:
    steps = (
        _scalar("05_relu_backward", s, tiles, ("dy", "y", "da"), cpu.relu_backward, KEEP=0),
        _scalar("16_accumulate", s, tiles, ("da", "db"), cpu.accumulate),
    )
    return Program(residual_backward_buffers(s), steps)


def two_launches_cost(s: MapsShape, program: Program) -> Cost:
    """Returns the cost with da read once more: the second launch adds it to db."""
    return Cost(s.flops, s.bytes + 4 * s.elements, 0)


def build_residual_backward(s: MapsShape, tiles: Tiles) -> Program:
    names = "dy", "y", "da", "db"
    step = _scalar("17_residual_backward", s, tiles, names, cpu.residual_backward)
    return Program(residual_backward_buffers(s), (step,))


def build_residual_backward_float4(s: MapsShape, tiles: Tiles) -> Program:
    names = "dy", "y", "da", "db"
    step = _wide("18_residual_backward_float4", s, tiles, names, cpu.residual_backward)
    return Program(residual_backward_buffers(s), (step,))


RESIDUAL_BACKWARD_RUNG: Callable[..., Rung] = rung_factory("residual-backward", cost, TOLERANCE)
RESIDUAL_BACKWARD = Ladder(
    name="residual-backward",
    shape=ResidualBackwardShape,
    parse=parser(ResidualBackwardShape),
    reference=reference.residual_backward,
    derive=output_of,
    presets=presets("residual-backward", ResidualBackwardShape),
    swept=("residual-backward-res2-n64",),
    rungs=(
        rung_factory("residual-backward", two_launches_cost, TOLERANCE)(
            "two-launches",
            mark("gradient of ReLU, then its addition"),
            mark("Two launches. The second reads da again and adds it to db."),
            build_mask_accumulate,
            rules,
            BLOCKS,
            SMALL,
            cpu_title=mark("gradient of ReLU, then its addition"),
        ),
        RESIDUAL_BACKWARD_RUNG(
            "scalar",
            mark("one thread per element"),
            mark("One launch. The gradient stays in a register: it is written to da and added to db."),
            build_residual_backward,
            rules,
            BLOCKS,
            SMALL,
            cpu_title=mark("both gradients, a few elements at a time"),
        ),
        RESIDUAL_BACKWARD_RUNG(
            "float4",
            mark("float4, several per thread"),
            mark("A thread loads several float4 of dy, y and db before it uses the first."),
            build_residual_backward_float4,
            rules,
            WIDE,
            WIDE_SMALL,
            not_on_cpu=SAME_ON_CPU,
        ),
        _torch(
            "residual-backward",
            mark("PyTorch, eager"),
            mark("threshold_backward, then add in place: two launches."),
            residual_backward_buffers,
            library.ResidualBackward,
        ),
    ),
)

LADDERS = (RELU, RELU_BACKWARD, GELU, GELU_BACKWARD, BIAS, BIAS_BACKWARD, RESIDUAL, RESIDUAL_BACKWARD)
