"""The machine code (SASS) of a kernel, by CUDA line: compiled by NVRTC, disassembled by NVIDIA's nvdisasm.

The control bits of an instruction are not documented by NVIDIA. Their places are those of Jia et al., "Dissecting the NVIDIA
Volta GPU Architecture via Microbenchmarking" (arXiv 1804.06826), section 2; later architectures have the same.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kernels.engines.cuda_headers import DEFAULT_TOOLKIT
from kernels.engines.emulator.compiler import entries
from kernels.engines.emulator.compiler.compile import CompilerMissing
from kernels.engines.emulator.compiler.source import Source
from kernels.engines.emulator.compiler.translated import Translated
from kernels.engines.emulator.ptx.kernel import Line
from kernels.model.program import RuleError

PACKAGE = "nvidia-cuda-nvdisasm"
LEGEND = """at     the instruction's byte in the kernel
stall  cycles until the warp can issue its next instruction
sets   a barrier: w2 is set until the result is written, r2 until the operands are read
waits  barriers that must be clear before the instruction issues"""
_CONTROL, _NONE = 105 - 64, 7  # the first control bit in the upper half of an encoding; the number of no barrier
_SECTION = re.compile(r"^\s*\.section\s+([^,\s]+)")
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_UPPER = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_PLACE = re.compile(r'^\s*//## File "(.*?)", line (\d+)( inlined at)?')
_LABEL = re.compile(r"^([\w$.]+):\s*$")
_TARGET = re.compile(r"`\(([^)]*)\)")


@dataclass(frozen=True)
class Control:
    """The control bits of an instruction. `stall`: cycles until the warp's next instruction can issue. `yields`: the scheduler
    prefers another warp then. `written`, `read`: the barrier that is set until the result is written or the operands are read.
    `waits`: barriers that must be clear. `reuse`: bits of the operands whose values stay in the cache of registers."""

    stall: int
    yields: bool
    written: int | None
    read: int | None
    waits: tuple[int, ...]
    reuse: int

    @classmethod
    def decoded(cls, upper: int) -> Control:
        """Returns the control bits in the upper 64 bits of an instruction's encoding."""
        bits = upper >> _CONTROL
        written, read, waits = bits >> 5 & 7, bits >> 8 & 7, bits >> 11 & 63
        return cls(
            bits & 15,
            not bits >> 4 & 1,
            None if written == _NONE else written,
            None if read == _NONE else read,
            tuple(n for n in range(6) if waits >> n & 1),
            bits >> 17 & 15,
        )

    def text(self) -> str:
        sets = [f"{letter}{n}" for letter, n in (("w", self.written), ("r", self.read)) if n is not None]
        return f"{self.stall:5}  {' '.join(sets):5}  {' '.join(map(str, self.waits)):5}"


@dataclass(frozen=True)
class MachineInstruction:
    """An instruction of machine code. `line`: of the outermost call, `inlined`: in the function that was inlined there, if
    any; both as in the emulator's Instruction."""

    at: int
    text: str
    control: Control
    line: Line | None
    inlined: Line | None = None


@dataclass(frozen=True)
class Sass:
    arch: str
    instructions: tuple[MachineInstruction, ...]

    def to_json(self) -> dict:
        return {"arch": self.arch, "instructions": [asdict(i) for i in self.instructions]}

    def text(self, source: Source) -> str:
        """Returns each line of the source with its instructions below it, in the order of the source."""
        out = [f"\nmachine code of {self.arch}, {len(self.instructions)} instructions", LEGEND]
        out.append(f"\n{'':8}   at  stall  {'sets':5}  {'waits':5}")
        lines = dict.fromkeys(i.line for i in self.instructions)
        own = source.path.name
        for line in sorted(lines, key=lambda at: (at is None, at and (at.file != own, at.file, at.number))):
            out.append(
                "code without a line" if line is None else f"{line.number:5} | {source.line(line.file, line.number)}"
            )
            out += [f"{'':8} {i.at:4x}  {i.control.text()}  {i.text}" for i in self.instructions if i.line == line]
        return "\n".join(out)


def disassembler() -> Path:
    """Returns the program nvdisasm, from its wheel or a CUDA toolkit. CompilerMissing names the wheel."""
    name = "nvdisasm.exe" if os.name == "nt" else "nvdisasm"
    for folder in _wheels():
        for path in sorted(folder.glob(f"cu*/bin/**/{name}")):
            return path
    homes = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), DEFAULT_TOOLKIT)
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(str(Path(h) / "bin") for h in homes if h))
    if found is None:
        raise CompilerMissing(f"--sass needs NVIDIA's nvdisasm: pip install {PACKAGE}")
    return Path(found)


def _wheels() -> list[Path]:
    try:
        import nvidia
    except ImportError:
        return []
    return [Path(folder) for folder in nvidia.__path__]


def disassembled(code: Translated, entry: str) -> Sass:
    """Returns the machine code of a kernel of CUDA C++ for its architecture. RuleError for a kernel of PTX, which NVRTC does
    not assemble; CompilerMissing without nvdisasm."""
    if not code.options:
        raise RuleError(f"--sass compiles CUDA C++, and {code.source.path.name} is PTX")
    program = disassembler()
    arch = code.arch.replace("compute_", "sm_", 1)
    options = tuple(
        option.replace("compute_", "sm_") if "-architecture" in option else option for option in code.options
    )
    cubin = entries.compile_cubin(code.source.text, os.path.abspath(code.source.path), options, entry)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([program, "-c", "-gi", "-hex", path], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuleError(
            f"nvdisasm does not read the machine code of {arch}: {(done.stderr or done.stdout).strip()[:500]}"
        )
    return Sass(arch, parse(done.stdout, code.name))


def parse(text: str, kernel: str) -> tuple[MachineInstruction, ...]:
    """Returns a kernel's instructions in a disassembly by `nvdisasm -c -gi -hex`, without the padding after the last one."""
    labels: dict[str, int] = {}
    found = list(_instructions(_section(text, kernel), labels))
    while found and found[-1].text == "NOP":
        found.pop()

    def target(m: re.Match) -> str:
        name = "" if m[1].startswith(".L") else f" ({m[1]})"
        return f"0x{labels[m[1]]:x}{name}" if m[1] in labels else m[1]

    return tuple(replace(i, text=_TARGET.sub(target, i.text)) for i in found)


def _section(text: str, kernel: str) -> Iterator[str]:
    """Yields the lines of a kernel's section."""
    inside = False
    for line in text.splitlines():
        if m := _SECTION.match(line):
            inside = m[1].strip('"') == f".text.{kernel}"
        elif inside:
            yield line


def _instructions(lines: Iterator[str], labels: dict[str, int]) -> Iterator[MachineInstruction]:
    """Yields the instructions of a section, and adds the offsets of its labels to `labels`."""
    place: Line | None = None
    inlined: Line | None = None
    nested = False  # the place before is in a function that is inlined at the next one
    waiting: list[str] = []  # labels of the next instruction
    for line in lines:
        if m := _PLACE.match(line):
            here = Line(re.split(r"[/\\]", m[1])[-1], int(m[2]))
            place, inlined = here, (inlined or place) if nested else None
            nested = bool(m[3])
        elif m := _LABEL.match(line):
            waiting.append(m[1])
            if not m[1].startswith("."):  # a function begins; it may have no lines
                place = inlined = None
        elif m := _INSTRUCTION.match(line):
            upper = _UPPER.match(next(lines, ""))
            at = int(m[1], 16)
            labels.update(dict.fromkeys(waiting, at))
            waiting, nested = [], False
            yield MachineInstruction(at, m[2], Control.decoded(int(upper[1], 16) if upper else 0), place, inlined)
