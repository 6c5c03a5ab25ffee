"""The CUDA C++ of a fused FP16 convolution with the channels last: implicit GEMM on Hopper's tensor cores, with the
pointwise blocks after it in its epilogue. A name is enough for the text: "fusion/fp16_conv_bn_relu.cu"."""

from __future__ import annotations

import textwrap
from functools import lru_cache

from kernels.fusion.codegen import FETCH, WIDTH, Group, Names, groups, listed
from kernels.fusion.shape import KINDS, TENSORS, named

PREFIX = "fusion/fp16_"  # how a source's name begins


def source(kinds: tuple[str, ...]) -> str:
    """Returns the name of the kernel of a convolution and the blocks after it."""
    return f"{PREFIX}{'_'.join(kinds)}.cu"


def parse_source(name: str) -> Group:
    """Returns the blocks whose kernel has this name. Raises FileNotFoundError if no kernel has it."""
    kinds = tuple(name.removeprefix(PREFIX).removesuffix(".cu").split("_"))
    known = name == source(kinds) and set(kinds) <= set(KINDS)
    if not known or kinds[0] != "conv" or len(groups(kinds)) != 1:
        raise FileNotFoundError(f"{name} names no fused kernel")
    return Group(0, kinds)


def params(kinds: tuple[str, ...]) -> int:
    """Returns the numbers of a filter that the epilogue uses."""
    return sum(len(FETCH.get(kind, ())) for kind in kinds)


@lru_cache(maxsize=256)
def text(name: str) -> str:
    """Returns the CUDA C++ of a kernel, by its name.

    Its arguments are tensor maps of x, w, each addend z and y; pointers to the float32 parameters of the blocks; `Conv`
    and the eps of each bn. The order is that of Stage.tensors.
    """
    group = parse_source(name)
    body = "\n".join(f"  {line}" if line and line[0] != "#" else line for line in _body(group))
    return f'{_opening(group)}\n\n#include "half_product.cuh"\n\n{_signature(group)}\n{body}\n}}\n'


def _opening(group: Group) -> str:
    """Returns the opening comment: the chain, the idea, what limits it, the launch."""
    blocks = listed(group.kinds[1:])
    idea = "the convolution is one matrix product on the tensor cores. The copy engine loads windows and filters into a ring of stages."
    if blocks:
        is_ = "is" if len(group.kinds) == 2 else "are"
        idea += f" While the sums are in registers, {blocks} {is_} applied to them, and they are rounded once. The maps between are never stored."
    if "add" in group.kinds:
        idea += " The tile that is added arrives in shared memory during the products."
    lines = (
        f"{' -> '.join(group.kinds)} in FP16 with the channels last: one kernel for {len(group.kinds)} blocks of a chain.",
        "",
        f"Idea: {idea}",
        "What limits it: each input pixel comes from the L2 cache once for each tap. With one tap, HBM.",
        "",
        "Written from the chain by kernels/fusion/half/codegen.py.",
        "Launch: grid (ceil(K / BN), ceil(N*P*Q / BM)), block 128 threads for each 64 pixels of the tile, and the producer warp. "
        "Dynamic shared memory: the ring, the tiles that are added, the barriers, and the parameters. BM, BN and STAGES are "
        "defines. C and K are multiples of 8.",
    )
    return "\n".join(
        textwrap.fill(line, WIDTH - 2, initial_indent="// ", subsequent_indent="// ", break_on_hyphens=False) or "//"
        for line in lines
    )


def _signature(group: Group) -> str:
    """Returns the entry point and arguments, each tensor with its shape."""
    shapes = {"w": "[K, R * S, C]", "z": "[N*P*Q, K]"}
    rows = [("const __grid_constant__ TensorMap x", "[N, H, W, C]")]
    for names in named(TENSORS.get(kind, ()) for kind in group.kinds):
        for tensor, name in names.items():
            kind = "const __grid_constant__ TensorMap" if tensor in shapes else "const float* __restrict__"
            rows.append((f"{kind} {name}", shapes.get(tensor, "[K]")))
    rows.append(("const __grid_constant__ TensorMap y", "[N*P*Q, K]"))
    width = max(len(row) for row, _ in rows) + 1
    lines = [f"    {row + ',':<{width}}  // {shape}" for row, shape in rows]
    eps = "".join(f", float {names['eps']}" for names in named(["eps"] for k in group.kinds if k == "bn"))
    scalars = textwrap.fill(f"Conv shape{eps}) {{", WIDTH, initial_indent="    ", subsequent_indent="    ")
    head = 'extern "C" __global__ void', f"__launch_bounds__(THREADS, RESIDENT) {'_'.join(group.kinds)}("
    return "\n".join([*head, *lines, scalars])


def _body(group: Group) -> list[str]:
    names, blocks = Names(group), group.epilogue
    by_block = names.by_block
    adds = [by_block[n] for n in blocks if group.kinds[n] == "add"]
    locals_ = [(n, local) for n in blocks for local in FETCH.get(group.kinds[n], ())]
    arrays = [by_block[n][local] for n, local in locals_]
    for n, local in locals_:
        by_block[n][local] += "[c]"
    return [
        "extern __shared__ __align__(1024) char shared[];",
        f"Ring<{len(adds)}> ring(shared);",
        *_parameters(names, blocks, arrays),
        "ring.begin();",
        "if (threadIdx.x / 32 == PRODUCER) {",
        "  if (!is_producer()) return;",
        *(f"  load_addend(&{add['z']}, {n}, ring);" for n, add in enumerate(adds)),
        "  load_tiles(&x, &w, ring, shape);",
        "  return;",
        "}",
        "",
        "float sum[BN / 8][4];",
        f"{'add_products(sum, ring.tiles, ring.full, ring.empty,':<48}  // conv",
        "             steps_of(shape));",
        *_epilogue(names, blocks, adds),
    ]


def _parameters(names: Names, blocks, arrays: list[str]) -> list[str]:
    """Returns lines that load the parameters of the block's filters into shared memory."""
    if not arrays:
        return []
    return [
        *(f"float* {name} = ring.params + {n} * BN;" for n, name in enumerate(arrays)),
        "for (int c = threadIdx.x; c < BN; c += THREADS) {",
        "  int k = min(blockIdx.x * BN + c, shape.K - 1);",
        *(f"  {line}" for line in names.fetch(blocks, "k", declare=False)),
        "}",
    ]


def _epilogue(names: Names, blocks, adds: list[dict[str, str]]) -> list[str]:
    """Returns lines that apply the blocks to the sums and store them. With an addend, the results replace its tile."""
    boxes = "ring.addends" if adds else "ring.tiles"
    ready = "wait(ring.addends_full, 0);" if adds else "consumers_barrier();  // all have read the last tiles"
    uses_params = any(names.group.kinds[n] in FETCH for n in blocks)
    apply = [
        "#pragma unroll",
        "  for (int j = 0; j < 4; ++j) {",
        *(["    int c = column_of(eight, j);"] if uses_params else ()),
        *(f"    {line}" for line in names.apply(blocks, "v[j]")),
        "  }",
    ]
    return [
        ready,
        "#pragma unroll",
        "for (int eight = 0; eight < BN / 8; ++eight) {",
        "  float(&v)[4] = sum[eight];",
        *(f"  float {add['other']}[4];" for add in adds),
        *(f"  read_four({add['other']}, ring.addends + {n} * BM * BN, eight);" for n, add in enumerate(adds)),
        *(apply if blocks else ()),
        f"  write_four({boxes}, v, eight);",
        "}",
        f"store_boxes(&y, {boxes});",
    ]
