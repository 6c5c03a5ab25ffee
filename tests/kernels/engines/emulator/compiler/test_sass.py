"""The machine code of a kernel: control bits, lines, labels; with NVIDIA's nvdisasm where it is installed."""

from __future__ import annotations

import json
import shutil

import pytest

from kernels.__main__ import main
from kernels.engines.emulator.compiler import sass
from kernels.engines.emulator.compiler.compile import CompilerMissing
from kernels.engines.emulator.compiler.sass import Control, MachineInstruction
from kernels.engines.emulator.compiler.translated import translated
from kernels.engines.emulator.ptx.kernel import Line
from kernels.model.program import RuleError
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every

CHAIN = """extern "C" __global__ void chain(const float* x, float* y, float a) {
  float v = x[threadIdx.x];
  v = v + a;
  v = v + a;
  v = v + a;
  y[threadIdx.x] = v;
}
"""
CALLS = """__device__ __forceinline__ float inlined(float a) {
  return rsqrtf(a); }
__device__ __noinline__ float called(float a) { return a / 7.f; }
template <class T> __global__ void k(T* x, int n) {
  for (int i = 0; i < n; ++i)
    x[i] += inlined(x[i + 1]);
  x[0] = called(x[0]);
}
"""
# A part of what nvdisasm 13.5 prints of such kernels.
LISTING = r"""
	.section	.text.other,"ax",@progbits
other:
        /*0000*/                   EXIT ;                          /* 0x000000000000794d */
                                                                   /* 0x000fea0003800000 */
	.section	.text.chain,"ax",@progbits
        .global         chain
chain:
.text.chain:
	//## File "/tmp/own.cu", line 2
        /*0000*/                   LDG.E R2, [R2.64] ;             /* 0x0000000402027981 */
                                                                   /* 0x000ea2000c1e1900 */
.L_x_1:
	//## File "/tmp/own.cu", line 9 inlined at "/tmp/own.cu", line 3
	//## File "/tmp/own.cu", line 3
        /*0010*/                   FADD R0, R2, c[0x0][0x170] ;    /* 0x00005c0002007621 */
                                                                   /* 0x004fc80000000000 */
	//## File "/tmp/own.cu", line 3
        /*0020*/              @!P0 BRA `(.L_x_1) ;                 /* 0x0000000000000947 */
                                                                   /* 0x001fea0003800000 */
        /*0030*/                   CALL.REL.NOINC `($chain$f) ;    /* 0x0000000000007944 */
                                                                   /* 0x021fea0003c00000 */
        .type           $chain$f,@function
$chain$f:
        /*0040*/                   FMUL R9, R8.reuse, R8 ;         /* 0x4b80000008097820 */
                                                                   /* 0x041fe20000400000 */
        /*0050*/                   NOP;                            /* 0x0000000000007918 */
                                                                   /* 0x000fc00000000000 */
"""


@pytest.fixture
def own(tmp_path):
    """Returns a function that writes CUDA C++ and returns a kernel's machine code."""
    try:
        sass.disassembler()
    except CompilerMissing as e:
        pytest.skip(str(e))

    def disassembled(text: str, entry: str, arch: str = "sm_80") -> sass.Sass:
        path = tmp_path / "own.cu"
        path.write_text(text, encoding="utf-8")
        return sass.disassembled(translated(path, entry, (), arch=arch), entry)

    return disassembled


# -- the bits ----------------------------------------------------------------------------------------------
@every(
    ("upper", "control"),
    [
        (0x000FC80000000000, Control(4, True, None, None, (), 0)),
        (0x000FE40000000F00, Control(2, False, None, None, (), 0)),
        (0x000EA2000C1E1900, Control(1, False, 2, None, (), 0)),
        (0x004FC80000000000, Control(4, True, None, None, (2,), 0)),
        (0x001FCC00078E0005, Control(6, True, None, None, (0,), 0)),
        (0x0001E2000C101904, Control(1, False, None, 0, (), 0)),
        (0x041FE20000400000, Control(1, False, None, None, (0,), 1)),
        (0x07FFFFFFFFFFFFFF & ~(0x3FFFFF << 41) | 0x3F << 52, Control(0, True, 0, 0, (0, 1, 2, 3, 4, 5), 0)),
    ],
)
def test_control_bits(upper, control):
    assert Control.decoded(upper) == control


def test_listing_is_parsed():
    load, add, branch, call, callee = sass.parse(LISTING, "chain")
    assert load == MachineInstruction(
        0, "LDG.E R2, [R2.64]", Control(1, False, 2, None, (), 0), Line("own.cu", 2), None
    )
    assert (add.line, add.inlined, add.control.waits) == (Line("own.cu", 3), Line("own.cu", 9), (2,))
    assert (branch.line, branch.inlined, branch.text) == (Line("own.cu", 3), None, "@!P0 BRA 0x10")
    assert call.text == "CALL.REL.NOINC 0x40 ($chain$f)"
    assert (callee.line, callee.at, callee.control.reuse) == (None, 0x40, 1)


# -- with nvdisasm -----------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "compute_86", "sm_89", "sm_90a"])
def test_dependent_adds_stall_and_a_load_sets_the_barrier_that_its_use_waits_for(arch, own):
    code = own(CHAIN, "chain", arch)
    assert code.arch == arch.replace("compute", "sm")
    adds = [i for i in code.instructions if i.text.startswith("FADD")]
    assert [i.line and i.line.number for i in adds] == [3, 4, 5]
    assert all(i.control.stall >= 4 for i in adds)
    (load,) = (i for i in code.instructions if i.text.startswith("LDG"))
    assert load.control.written is not None and load.control.written in adds[0].control.waits
    assert not any(load.control.written in i.control.waits for i in adds[1:])
    assert any(i.text == "EXIT" for i in code.instructions) and code.instructions[-1].text != "NOP"


@needs_nvrtc
def test_templates_inlined_and_called_functions(own):
    code = own(CALLS, "k<float>", "sm_90")
    inlined = {(i.line.number, i.inlined.number) for i in code.instructions if i.line and i.inlined}
    assert inlined == {(6, 2)}
    assert any(i.line == Line("own.cu", 3) for i in code.instructions)  # the called function
    assert any(i.line is None for i in code.instructions)  # of the division
    assert [i.at for i in code.instructions] == list(range(0, 16 * len(code.instructions), 16))


@needs_nvrtc
def test_command_prints_each_line_once(own, tmp_path, capsys):
    own(CHAIN, "chain")
    command = ["emulate", str(tmp_path / "own.cu"), "chain", "--grid=1", "--block=32", "--sass"]
    command += ["--arg", "f32:32:ones", "--arg", "f32:32:empty", "--arg", "f32:1"]
    assert main(command) == 0
    machine = capsys.readouterr().out.partition("machine code of sm_80")[2]
    assert [line[:5].strip() for line in machine.splitlines() if line[5:8] == " | "] == [str(n) for n in range(1, 8)]
    assert main([*command, "--json", "-arch=sm_90"]) == 0
    found = json.loads(capsys.readouterr().out)["sass"]
    assert found["arch"] == "sm_90" and {"at", "text", "control", "line", "inlined"} == found["instructions"][0].keys()


# -- refusals ------------------------------------------------------------------------------------------------
@needs_nvrtc
def test_missing_nvdisasm_names_its_package(tmp_path, monkeypatch, capsys):
    (tmp_path / "own.cu").write_text(CHAIN, encoding="utf-8")
    monkeypatch.setattr(sass, "_wheels", list)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    command = ["emulate", str(tmp_path / "own.cu"), "chain", "--grid=1", "--block=32", "--sass"]
    assert main([*command, "--arg", "f32:32:ones", "--arg", "f32:32:empty", "--arg", "f32:1"]) == 2
    error = capsys.readouterr().err
    assert sass.PACKAGE in error and error.count("\n") == 1


def test_ptx_has_no_machine_code(tmp_path):
    path = tmp_path / "own.ptx"
    path.write_text(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n", encoding="utf-8"
    )
    with pytest.raises(RuleError, match=r"own\.ptx is PTX"):
        sass.disassembled(translated(path, "k", ()), "k")
