"""Fusion: a chain of blocks cut into as few kernels as possible, and the CUDA C++ of each, generated from its blocks.

The rule. A pointwise block (bias, bn, relu, add) needs only one value for each result, so it is computed in registers.
It becomes part of the kernel that computes its input, after the sum (epilogue). If no kernel has begun, it becomes part
of the pool that reads its output (prologue). A convolution or a pool needs neighbours, values that other threads
compute, so it begins a new kernel. In the same kernel, each input value would be computed again for every window that
contains it, R*R times (in a convolution for each of K filters too). For that reason pointwise blocks before a
convolution are not its prologue: they get a separate kernel, like a chain of only pointwise blocks.

A convolution is computed by one thread per output ("fused"), or as a matrix product whose tiles are made in shared
memory ("implicit", as implicit GEMM). The other kernels are the same for both.

A kernel's text depends only on the kinds of its blocks: sizes, windows and eps are arguments. So its name is enough:
"fusion/fused_conv_bias_relu.cu", for which kernels.sources calls text() in any process.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from kernels.fusion.shape import KINDS, REDUCING, TENSORS, named

FUSED, IMPLICIT = "fusion/fused_", "fusion/implicit_"  # how a generated source's name begins
PREFIXES = (FUSED, IMPLICIT)
WIDTH = 72  # columns

PER_MAP = ("bias", "bn")  # blocks with parameters for each map
# For a pointwise block: FETCH is loaded once per map (local: expression), APPLY changes a value. {v} is the value,
# {c} its map; other names are the block's variables.
FETCH = {
    "bias": {"map_bias": "{b}[{c}]"},
    "bn": {
        "map_mean": "{mean}[{c}]",
        "map_gain": "{gamma}[{c}] * rsqrtf({var}[{c}] + {eps})",
        "map_beta": "{beta}[{c}]",
    },
}
APPLY = {
    "bias": "{v} += {map_bias};",
    "bn": "{v} = ({v} - {map_mean}) * {map_gain} + {map_beta};",
    "relu": "{v} = positive({v});",
    "add": "{v} += {other};",
}


@dataclass(frozen=True)
class Group:
    """Blocks `first`, `first` + 1, ... of a chain (from 0) that share one kernel, by their kinds.

    `implicit`: its convolution, if it has one, is computed as a matrix product.
    """

    first: int
    kinds: tuple[str, ...]
    implicit: bool = False

    @property
    def blocks(self) -> tuple[int, ...]:
        """The numbers of the blocks in the chain."""
        return tuple(range(self.first, self.first + len(self.kinds)))

    @property
    def core(self) -> str:
        """The block that needs neighbours: "conv", "maxpool", "avgpool", "gap"; "" if there is none."""
        return next((kind for kind in self.kinds if kind in REDUCING), "")

    @property
    def prologue(self) -> tuple[int, ...]:
        """Indices of the `kinds` that are applied to each value the core reads."""
        return tuple(range(self.kinds.index(self.core))) if self.core else ()

    @property
    def epilogue(self) -> tuple[int, ...]:
        """Indices of the `kinds` that are applied to each value the core computes, or to each value without a core."""
        return tuple(range(self.kinds.index(self.core) + 1 if self.core else 0, len(self.kinds)))

    @property
    def source(self) -> str:
        """The name of the kernel's text, for kernels.sources.text and for a Launch."""
        prefix = IMPLICIT if self.is_product else FUSED
        return f"{prefix}{'_'.join(self.kinds)}.cu"

    @property
    def is_product(self) -> bool:
        """Whether the kernel computes a convolution as a matrix product."""
        return self.implicit and self.core == "conv"


def groups(kinds: Sequence[str], implicit: bool = False) -> tuple[Group, ...]:
    """Cut a chain, given by the kinds of its blocks, by the rule above: every block is in one group, in order."""
    cuts = [0]
    for at, kind in enumerate(kinds):
        current = kinds[cuts[-1] : at]
        has_core = any(k in REDUCING for k in current)
        if current and kind in REDUCING and (has_core or kind == "conv"):
            cuts.append(at)
    return tuple(
        Group(first, tuple(kinds[first:end]), implicit)
        for first, end in zip(cuts, [*cuts[1:], len(kinds)], strict=True)
    )


def parse_source(source: str) -> Group:
    """Returns the group whose kernel has this name. Raises FileNotFoundError if no kernel has it."""
    prefix = next((prefix for prefix in PREFIXES if source.startswith(prefix)), "")
    kinds = tuple(source.removeprefix(prefix).removesuffix(".cu").split("_"))
    group = Group(0, kinds, prefix == IMPLICIT)
    if source != group.source or not set(kinds) <= set(KINDS) or len(groups(kinds)) != 1:
        raise FileNotFoundError(f"{source} names no fused kernel")
    return group


@lru_cache(maxsize=256)
def text(source: str) -> str:
    """Returns the CUDA C++ of a fused kernel, by its name.

    Its arguments are x, the tensors of each block in turn (Stage.tensors), y, `Maps` (of a matrix product `ConvMaps`),
    and the eps of each bn.
    """
    group = parse_source(source)
    by_core = {"": _elementwise, "conv": _product if group.is_product else _conv, "gap": _gap}
    write = by_core.get(group.core, _pool)
    body = "\n".join(f"  {line}" if line and not line.startswith("#") else line for line in write(Names(group)))
    header = "conv_product.cuh" if group.is_product else "fusion.cuh"
    return f'{_opening(group)}\n\n#include "{header}"\n\n{_signature(group)}\n{body}\n}}\n'


# -- names: the second bias of a kernel has b_2 and map_bias_2 -------------------------------------------------
class Names:
    """Generator of the lines of a kernel's blocks, with the names of their variables filled in."""

    def __init__(self, group: Group):
        self.group = group
        locals_ = {"bn": ("eps", *FETCH["bn"]), "bias": tuple(FETCH["bias"]), "add": ("other",)}
        self.by_block = named([*TENSORS.get(kind, ()), *locals_.get(kind, ())] for kind in group.kinds)

    def fetch(self, blocks: Sequence[int], c: str, declare: bool = True) -> list[str]:
        """Returns lines that load the parameters of map `c` into local variables."""
        return [
            f"{'float ' if declare else ''}{self.by_block[n][local]} = {expression.format(c=c, **self.by_block[n])};"
            for n in blocks
            for local, expression in FETCH.get(self.group.kinds[n], {}).items()
        ]

    def apply(self, blocks: Sequence[int], v: str, at: str = "") -> list[str]:
        """Returns lines that apply the blocks to the value `v`, one line per block, with its name as a comment.

        `at` is the index at which an addend is read.
        """
        out = []
        for n in blocks:
            kind, names = self.group.kinds[n], dict(self.by_block[n])
            if kind == "add":
                names["other"] = f"{names['z']}[{at}]" if at else f"{names['other']}[j]"
            out.append(f"{APPLY[kind].format(v=v, **names):<48}  // {kind}")
        return out

    def locals(self, blocks: Sequence[int], kind: str) -> list[str]:
        """Returns the names of the local variables that blocks of a kind load (for "add", of its four values)."""
        names = FETCH.get(kind, {"other": ""})
        return [self.by_block[n][name] for n in blocks if self.group.kinds[n] == kind for name in names]

    def needs_map(self, blocks: Sequence[int]) -> bool:
        return any(self.group.kinds[n] in PER_MAP for n in blocks)


# -- the parts of a text ----------------------------------------------------------------------------------------
_NEVER_STORED = "The maps between are never stored."


def _opening(group: Group) -> str:
    """Returns the opening comment: the chain, the idea, what limits it, the launch."""
    core, last = group.core, len(group.kinds)
    epilogue, prologue = (listed(group.kinds[n] for n in part) for part in (group.epilogue, group.prologue))
    is_fused = last > 1
    if not core:
        idea = f"a thread loads four values as one float4. In registers it applies {_all(last)} to them. Then it stores them."
        idea += f" A launch for each block would read and write every value {last} times." if is_fused else ""
        bytes_per_value = 8 + 4 * group.kinds.count("add")
        limit = f"HBM. {bytes_per_value} bytes are moved for each value. That does not depend on the number of blocks."
        grid = "ceil(N*C*H*W / (4 * FOURS * block)), block BLOCK. A thread computes FOURS times four values."
    elif group.is_product:
        idea, limit, grid = _product_opening(group, epilogue)
    elif core == "conv":
        idea = "one thread per output value multiplies the window under it, in all C maps, by a filter. It adds the products."
        idea += (
            f" While the sum is in a register, {epilogue} {_is(group.epilogue)} applied to it. {_NEVER_STORED}"
            if epilogue
            else ""
        )
        limit = "the multiply-adds, C*R*R of them for every value that is written."
        limit += " Fusion saves bytes, and this kernel does not wait for bytes." if epilogue else ""
        grid = "ceil(N*K*P*Q / block), block BLOCK."
    elif core == "gap":
        idea = "a warp per map adds its values. Neighbouring lanes load neighbouring values. Then the lanes exchange their sums."
        idea += f" Before a value is added, {prologue} {_is(group.prologue)} applied to it." if prologue else ""
        idea += f" Before the mean is stored, {epilogue} {_is(group.epilogue)} applied to it." if epilogue else ""
        limit = "HBM. The maps are read once, and almost nothing is written."
        grid = "ceil(N*C / warps of a block), block BLOCK."
    else:
        word = "largest" if core == "maxpool" else "mean"
        idea = f"one thread per output value computes the {word} of the R x R values under its window."
        idea += f" First it applies {prologue} to each of them. {_NEVER_STORED}" if prologue else ""
        idea += f" Before the result is stored, {epilogue} {_is(group.epilogue)} applied to it." if epilogue else ""
        limit = "HBM. If windows overlap, the caches hold the values that are read again."
        limit += f" For these, {prologue} {_is(group.prologue)} computed again." if prologue else ""
        grid = "ceil(N*C*P*Q / block), block BLOCK."
    head = f"{' -> '.join(group.kinds)}: {'one kernel for ' + str(last) + ' blocks' if is_fused else 'one block'} of a chain."
    lines = (
        head,
        "",
        f"Idea: {idea}",
        f"What limits it: {limit}",
        "",
        "Written from the chain by kernels/fusion/codegen.py.",
        f"Launch: grid {grid}",
    )
    return "\n".join(
        textwrap.fill(line, WIDTH - 2, initial_indent="// ", subsequent_indent="// ", break_on_hyphens=False) or "//"
        for line in lines
    )


def _product_opening(group: Group, epilogue: str) -> tuple[str, str, str]:
    """Returns the idea of a convolution as a matrix product, what limits it, its grid and block."""
    idea = "the convolution is one matrix product: filters times windows. A block makes the tiles of the windows in shared memory. Each value there is used for many sums."
    if epilogue:
        idea += f" While the sums are in registers, {epilogue} {_is(group.epilogue)} applied to them. {_NEVER_STORED}"
    limit = "the multiply-adds, and copies of four bytes. Each copy computes an address and tests the borders."
    grid = "(ceil(N*P*Q / BN), ceil(K / BM)), block (BM / TM) * (BN / TN), dynamic shared memory for STAGES tiles. BM, BN, BK, TM, TN and STAGES are defines."
    return idea, limit, grid


def _is(blocks: Sequence[int]) -> str:
    return "are" if len(blocks) > 1 else "is"


def _all(count: int) -> str:
    return {1: "the block", 2: "both blocks"}.get(count, f"all {count} blocks")


def listed(words) -> str:
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _signature(group: Group) -> str:
    """Returns the entry point and arguments, each pointer with its shape."""
    maps = "[N, C, H, W]"
    output_shape = {"conv": "[N, K, P, Q]", "gap": "[N, C, 1, 1]", "": maps}.get(group.core, "[N, C, P, Q]")
    output_maps = "K" if group.core == "conv" else "C"  # maps of the core's output
    rows = [("const float* __restrict__ x", maps)]
    for n, names in enumerate(named(TENSORS.get(kind, ()) for kind in group.kinds)):
        z = maps if n in group.prologue else output_shape
        shapes = {"w": "[K, C, R, R]", "z": z}
        rows += [
            (f"const float* __restrict__ {name}", shapes.get(tensor_kind, f"[{output_maps}]"))
            for tensor_kind, name in names.items()
        ]
    rows.append(("float* __restrict__ y", output_shape))
    width = max(len(name) for name, _ in rows) + 1
    lines = [f"    {name + ',':<{width}}  // {shape}" for name, shape in rows]
    eps = "".join(f", float {names['eps']}" for names in named(["eps"] for k in group.kinds if k == "bn"))
    entry = "_".join(group.kinds)
    struct = "ConvMaps" if group.is_product else "Maps"
    scalars = textwrap.fill(f"{struct} shape{eps}) {{", WIDTH, initial_indent="    ", subsequent_indent="    ")
    head = [f'extern "C" __global__ void {entry}(']
    if group.is_product:
        head = ['extern "C" __global__ void', f"__launch_bounds__(THREADS, RESIDENT) {entry}("]
    return "\n".join([*head, *lines, scalars])


def _elementwise(names: Names) -> list[str]:
    all_blocks = names.group.epilogue
    fetched = [name for kind in PER_MAP for name in names.locals(all_blocks, kind)]
    others = names.locals(all_blocks, "add")
    by_block = names.by_block
    loads = [
        f"  load({by_block[n]['other']}, {by_block[n]['z']}, i, count);"
        for n in all_blocks
        if names.group.kinds[n] == "add"
    ]
    fetch = [
        "    if (j == 0 || shape.P * shape.Q % 4 != 0) {  // else the same map",
        "      int c = map_of(i + j, shape);",
        *(f"      {line}" for line in names.fetch(all_blocks, "c", declare=False)),
        "    }",
    ]
    return [
        "int count = output_count(shape);",
        "int stride = 4 * gridDim.x * blockDim.x;",
        "int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);",
        "for (; i < count; i += stride) {",
        *(f"  {line}" for line in _declared(["v[4]", *(f"{other}[4]" for other in others)])),
        "  load(v, x, i, count);",
        *loads,
        *(f"  {line}" for line in _declared(fetched)),
        "  for (int j = 0; j < 4; ++j) {",
        *(fetch if fetched else ()),
        *(f"    {line}" for line in names.apply(all_blocks, "v[j]")),
        "  }",
        "  store(y, v, i, count);",
        "}",
    ]


def _declared(names: Sequence[str]) -> list[str]:
    """Returns declarations of floats, on as many lines as needed."""
    return textwrap.wrap(f"float {', '.join(names)};", WIDTH - 8, subsequent_indent="    ") if names else []


PIXEL = [
    "int i = blockIdx.x * blockDim.x + threadIdx.x;",
    "if (i >= output_count(shape)) return;",
    "int plane = divide(i, shape.by_PQ), row = divide(i, shape.by_Q);",
    "int q = i - row * shape.Q;      // output column",
    "int p = row - plane * shape.P;  // output row",
]
WINDOW = [
    "for (int r = 0; r < shape.R; ++r)",
    "  for (int s = 0; s < shape.R; ++s) {",
    "    int in_row = p * shape.stride - shape.pad + r;",
    "    int in_col = q * shape.stride - shape.pad + s;",
    "    if (in_row < 0 || in_row >= shape.H ||",
    "        in_col < 0 || in_col >= shape.W) continue;",
]


def _conv(names: Names) -> list[str]:
    epilogue = names.group.epilogue
    return [
        *PIXEL,
        "int n = divide(plane, shape.by_K), k = plane - n * shape.K;",
        "",
        "float v = 0.0f;",
        *WINDOW,
        "    const float* pixel =  // in map 0",
        "        x + (n * shape.C * shape.H + in_row) * shape.W + in_col;",
        "    const float* tap =  // of map 0",
        "        w + (k * shape.C * shape.R + r) * shape.R + s;",
        "    int in_area = shape.W * shape.H, taps = shape.R * shape.R;",
        "#pragma unroll 8",
        "    for (int c = 0; c < shape.C; ++c)",
        f"      {'v += pixel[c * in_area] * tap[c * taps];':<48}  // conv",
        "  }",
        *names.fetch(epilogue, "k"),
        *names.apply(epilogue, "v", "i"),
        "y[i] = v;",
    ]


def _product(names: Names) -> list[str]:
    epilogue, by_block = names.group.epilogue, names.by_block
    adds = [by_block[n] for n in epilogue if names.group.kinds[n] == "add"]
    apply = [
        "#pragma unroll",
        "for (int j = 0; j < 4; ++j) {",
        *(f"  {line}" for line in names.apply(epilogue, "v[j]")),
        "}",
    ]
    four = [
        "float* v = sum[row] + four;",
        "int pixel = pixel_of_column(four);",
        *(f"float {names['other']}[4];" for names in adds),
        *(f"load({names['other']}, {names['z']}, k, pixel, shape);" for names in adds),
        *(apply if epilogue else ()),
        "store(y, v, k, pixel, shape);",
    ]
    return [
        "extern __shared__ __align__(16) float stages[];",
        "float sum[TM][TN] = {};",
        f"{'add_products(sum, stages, x, w, shape);':<48}  // conv",
        "",
        "#pragma unroll",
        "for (int row = 0; row < TM; ++row) {",
        "  int k = map_of_row(row);",
        "  if (k >= shape.K) continue;",
        *(f"  {line}" for line in names.fetch(epilogue, "k")),
        "#pragma unroll",
        "  for (int four = 0; four < TN; four += 4) {",
        *(line if line.startswith("#") else f"    {line}" for line in four),
        "  }",
        "}",
    ]


def _pool(names: Names) -> list[str]:
    group = names.group
    prologue, epilogue, largest = group.prologue, group.epilogue, group.core == "maxpool"
    combine = "v = larger(v, u);" if largest else "v += u;"
    mean = [] if largest else [f"{'v /= shape.R * shape.R;':<48}  // avgpool"]
    find_map = ["int c = plane - divide(plane, shape.by_K) * shape.K;  // map"]
    return [
        *PIXEL,
        *(find_map if names.needs_map((*prologue, *epilogue)) else ()),
        *names.fetch(prologue, "c"),
        "",
        f"float v = {'-INFINITE' if largest else '0.0f'};",
        *WINDOW,
        "    int in_index = (plane * shape.H + in_row) * shape.W + in_col;",
        "    float u = x[in_index];",
        *(f"    {line}" for line in names.apply(prologue, "u", "in_index")),
        f"    {combine:<48}  // {group.core}",
        "  }",
        *mean,
        *names.fetch(epilogue, "c"),
        *names.apply(epilogue, "v", "i"),
        "y[i] = v;",
    ]


def _gap(names: Names) -> list[str]:
    prologue, epilogue = names.group.prologue, names.group.epilogue
    find_map = ["int c = i - divide(i, shape.by_K) * shape.K;  // map, in its image"]
    return [
        "int lane = threadIdx.x % 32;",
        "int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32;  // map",
        "if (i >= output_count(shape)) return;",
        "int area = shape.H * shape.W;",
        *(find_map if names.needs_map((*prologue, *epilogue)) else ()),
        *names.fetch(prologue, "c"),
        "",
        "float v = 0.0f;",
        "#pragma unroll 4",
        "for (int in_index = i * area + lane; in_index < (i + 1) * area;",
        "     in_index += 32) {",
        "  float u = x[in_index];",
        *(f"  {line}" for line in names.apply(prologue, "u", "in_index")),
        f"  {'v += u;':<48}  // gap",
        "}",
        "for (int lane_mask = 16; lane_mask; lane_mask /= 2)",
        "  v += __shfl_xor_sync(~0u, v, lane_mask);",
        "if (lane > 0) return;",
        f"{'v /= area;':<48}  // gap",
        *names.fetch(epilogue, "c"),
        *names.apply(epilogue, "v", "i"),
        "y[i] = v;",
    ]
