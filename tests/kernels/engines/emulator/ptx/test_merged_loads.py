"""Which neighbouring loads from shared memory the emulator counts as one, because ptxas merges them."""

from __future__ import annotations

import pytest

from kernels import sources
from kernels.engines.emulator.compiler import compile as compiler
from kernels.engines.emulator.ptx.kernel import Kernel, type_bytes
from kernels.engines.emulator.ptx.merged_loads import merged
from kernels.engines.emulator.ptx.parse import parse
from tests.helpers.offenders import every

needs_nvrtc = pytest.mark.skipif(compiler.version() is None, reason="NVRTC is not installed here")


def shared_offsets(kernel: Kernel) -> dict[str, int]:
    """Returns the offsets of the kernel's shared arrays, one after the other."""
    out, at = {}, 0
    for v in kernel.variables:
        if v.space == "shared":
            out[v.name] = at = -(-at // v.align) * v.align
            at += v.size
    return out


def widths(kernel: Kernel) -> list[int]:
    """Returns the bytes of each load from shared memory after merging, the widest first."""
    access_widths = merged(kernel.code, shared_offsets(kernel))
    out = []
    for pc, i in enumerate(kernel.code):
        if i.opcode.startswith("ld.shared"):
            width = type_bytes(i.parts[-1]) * next((int(p[1:]) for p in i.parts if p in ("v2", "v4")), 1)
            out.append(access_widths.get(pc, width))
    return sorted((w for w in out if w), reverse=True)


@needs_nvrtc
@pytest.mark.parametrize(
    "tile, wide, single", [(8, 6, 24), (16, 4, 16), (32, 8, 32)]
)  # as counted in sm_90 machine code
def test_tiled_product_loads_rows_by_16_bytes(tile, wide, single):
    options = (*compiler.OPTIONS, f"-DTILE={tile}")
    ptx = compiler.compile_ptx(sources.translation_unit("conv/03_gemm.cu"), "03_gemm.cu", options)
    assert widths(parse(ptx, "gemm")) == [16] * wide + [4] * single


def kernel_of(body: str, arrays: str = ".shared .align 4 .b8 a[4096];") -> Kernel:
    registers = ".reg .b32 %r<20>; .reg .f32 %f<20>; .reg .b64 %rd<9>; .reg .pred %p<3>;"
    ptx = f".entry k()\n{{\n{registers}\n{arrays}\n{body}\nret;\n}}\n"
    return parse(ptx.replace("; ", ";\n"), "k")


ROW = "mov.u32 %r0, %tid.y; shl.b32 %r1, %r0, 4; mov.u32 %r2, a; add.s32 %r3, %r2, %r1; "  # 16-aligned


def loads(*offsets: int, base: str = "%r3") -> str:
    return " ".join(f"ld.shared.f32 %f{n}, [{base}+{at}];" for n, at in enumerate(offsets)) + " "


@every(
    "body, expected",
    [
        (ROW + loads(0, 4, 8, 12), [16]),
        (ROW + loads(12, 4, 0, 8), [16]),
        (ROW + loads(0, 4, 8), [16]),  # three of four are enough
        (ROW + loads(4, 8, 12), [16]),
        (ROW + loads(0, 12), [4, 4]),
        (ROW + loads(4, 8), [4, 4]),  # no aligned pair
        (ROW + loads(8, 12), [8]),
        (ROW + loads(4, 8, 12, 16, 20), [16, 8]),
        (ROW + loads(0, 8, 16, 24), [4] * 4),
        (ROW.replace("shl.b32 %r1, %r0, 4", "mul.lo.s32 %r1, %r0, 132") + loads(0, 4, 8, 12), [4] * 4),
        (ROW.replace("shl.b32 %r1, %r0, 4", "mul.lo.s32 %r1, %r0, 136") + loads(0, 4, 8, 12), [8, 8]),
        (ROW + "add.s32 %r4, %r3, 8; " + loads(0, 4) + loads(0, 4, base="%r4"), [16]),
        # An instruction between loads that may write prevents merging.
        (ROW + loads(0, 4) + "bar.sync 0; " + loads(8, 12), [8, 8]),
        (ROW + loads(0, 4) + "bar.warp.sync -1; " + loads(8, 12), [8, 8]),
        (ROW + loads(0, 4) + "st.shared.f32 [%r1], %f0; " + loads(8, 12), [8, 8]),
        (ROW + loads(0, 4) + "st.shared.f32 [%r3+8], %f0; " + loads(8, 12), [8, 8]),
        (ROW + loads(0, 4) + "st.shared.f32 [%r3+64], %f0; " + loads(8, 12), [16]),
        (ROW + loads(0, 4) + "st.global.f32 [%rd1], %f0; " + loads(8, 12), [16]),
        # A base register that is written becomes another base.
        (ROW + loads(0, 4) + "add.s32 %r3, %r3, 16; " + loads(8, 12), [8, 8]),
        # A pointer that starts at byte 8 and advances by 16 is known to be 8-aligned, no more.
        (
            ROW
            + "add.s32 %r5, %r3, 8; $L:\n "
            + loads(-8, -4, 0, 4, base="%r5")
            + "add.s32 %r5, %r5, 16; @%p1 bra $L; ",
            [8, 8],
        ),
    ],
)
def test_merged_load_widths(body, expected):
    assert widths(kernel_of(body)) == expected


def test_store_to_another_array_does_not_prevent_merging():
    arrays = ".shared .align 4 .b8 a[4096];\n.shared .align 4 .b8 b[4096];"
    other = "mov.u32 %r8, b; add.s32 %r9, %r8, %r0; "
    body = ROW + other + loads(0, 4) + "st.shared.f32 [%r9], %f0; " + loads(8, 12)
    assert widths(kernel_of(body, arrays)) == [16]


def test_alignment_depends_on_the_array_offset():
    """After five floats the next array starts at byte 20: three of its words share an aligned piece."""
    arrays = ".shared .align 4 .b8 a[20];\n.shared .align 4 .b8 b[256];"
    assert widths(kernel_of(loads(0, 4, 8, 12, base="b"), arrays)) == [16, 4]


def test_load_with_the_lowest_address_has_the_width():
    kernel = kernel_of(ROW + loads(8, 0, 4))
    loads_at = [pc for pc, i in enumerate(kernel.code) if i.opcode.startswith("ld.shared")]
    assert merged(kernel.code, shared_offsets(kernel)) == {loads_at[0]: 0, loads_at[1]: 16, loads_at[2]: 0}
