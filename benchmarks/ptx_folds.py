"""Results of PTX instructions, for the emulator's tests.

    python -m benchmarks.ptx_folds PTXAS NVDISASM   what ptxas folds: tests/fixtures/ptx_folds.json
    python -m benchmarks.ptx_folds                  what this machine's GPU computes: tests/fixtures/ptx_gpu.json

The instructions and their operands are those of tests/helpers/ptx_instructions.py. ptxas gets constants for operands,
computes most results itself and stores them as constants. These are read from the disassembly. ptxas and nvdisasm are in
the packages nvidia-cuda-nvcc and nvidia-cuda-nvdisasm; they need no GPU.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tempfile
from bisect import bisect
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.helpers import ptx_instructions
from tests.helpers.ptx_instructions import STRIDE, Typed

FIXTURES = Path(__file__).parent.parent / "tests/fixtures"
TARGETS = ("sm_90",)  # more may be named: an instruction is folded if one of them folds it
AT_ONCE = 100  # instructions in a module
HEADER_LINES = ptx_instructions.HEADER.count("\n") + 1
_KERNEL = re.compile(r"^\s*\.section\s+\.text\.(k\d+),", re.MULTILINE)
_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@\S+\s+)?(\S+)\s*(.*?)\s*;\s*/\* 0x([0-9a-f]{16}) \*/", re.MULTILINE)
_STORE = re.compile(r"\[U?R\d+(?:\.64|\.U32)*(?:\+UR\d+)?(?:\+(-?0x[0-9a-f]+))?\], (U?R\w+)")


def main(*tools: str) -> None:
    if tools:
        _write_folds(*tools)
    else:
        _write_gpu()


def _write_gpu() -> None:
    import cupy

    table = ptx_instructions.instructions()
    results = zip(table, ptx_instructions.on_gpu(table), strict=True)
    texts = {i.text: " ".join(f"{int(v):x}" for v in values) for i, values in results}
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    _write("ptx_gpu.json", {"device": device, "results": texts})


def _write(name: str, content: dict) -> None:
    (FIXTURES / name).write_text(json.dumps(content, indent=1) + "\n")


def _write_folds(ptxas: str, nvdisasm: str) -> None:
    table = ptx_instructions.instructions()
    folded: dict[str, list[str]] = {i.text: ["-"] * len(i.cases) for i in table}
    for target in TARGETS:
        rest = [i for i in table if "-" in folded[i.text]]
        for start in range(0, len(rest), AT_ONCE):
            for i, values in _folded(rest[start : start + AT_ONCE], target, ptxas, nvdisasm):
                for n, value in values.items():
                    _add(folded[i.text], n, f"{value & (1 << i.bits) - 1:x}", f"{i.text} on {target}")
    found = {text: " ".join(values) for text, values in folded.items() if set(values) != {"-"}}
    version = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout
    ptxas_version = re.search(r"V([\d.]+)", version)[1]
    _write("ptx_folds.json", {"ptxas": ptxas_version, "targets": TARGETS, "results": found})
    whole = sum("-" not in values for values in folded.values())
    print(f"{len(table)} instructions, {len(found)} folded, {whole} of them in every case")


def _add(results: list[str], case: int, text: str, what: str) -> None:
    if results[case] not in ("-", text):
        print(f"{what}, case {case}: {results[case]} or {text}")
    results[case] = text


def _folded(part: Sequence[Typed], target: str, ptxas: str, nvdisasm: str) -> Iterator[tuple[Typed, dict[int, int]]]:
    """Yields (instruction, results by case). An instruction that ptxas refuses is left out."""
    kernels = [ptx_instructions.of_constants(i, f"k{n}") for n, i in enumerate(part)]
    sass, log = _assembled(kernels, target, ptxas, nvdisasm)
    if sass is None:
        starts = list(itertools.accumulate((k.count("\n") + 1 for k in kernels), initial=HEADER_LINES + 1))
        refused = {bisect(starts, int(n)) - 1 for n in re.findall(r"line (\d+); error", log)}
        if not refused:
            raise SystemExit(log)
        for n in sorted(refused):
            print(f"refused: {part[n].text} on {target}")
        yield from _folded([i for n, i in enumerate(part) if n not in refused], target, ptxas, nvdisasm)
        return
    pieces = _KERNEL.split(sass)
    for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
        yield part[int(name[1:])], stored(text)


def _assembled(kernels: Sequence[str], target: str, ptxas: str, nvdisasm: str) -> tuple[str | None, str]:
    """Returns the machine code of kernels as text, or None and ptxas's messages."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "k.ptx", Path(folder) / "k.cubin"
        source.write_text("\n".join([ptx_instructions.HEADER.format(target=target), *kernels]))
        command = [ptxas, f"-arch={target}", str(source), "-o", str(binary)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return None, done.stderr
        command = [nvdisasm, "-hex", "-c", str(binary)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout, ""


# -- reading the machine code --------------------------------------------------------------------------------
def stored(sass: str) -> dict[int, int]:
    """Returns the constants that a kernel stores, by case. A register that anything but a move of a constant wrote is
    unknown, and so is everything after a branch."""
    registers: dict[str, int | None] = {"RZ": 0, "URZ": 0}
    out: dict[int, int] = {}
    for opcode, text, code in _LINE.findall(sass):
        name, operands = opcode.split(".")[0], [o.strip().replace(".reuse", "") for o in text.split(",")]
        if name in ("BRA", "CALL", "BRX", "BSSY"):
            break
        if name == "STG":
            store = _STORE.search(text)
            register, width = store[2], 64 if ".64" in opcode.split("STG")[1] else 32
            low = registers.get(register)
            high = registers.get(_next(register)) if width == 64 else 0
            if low is not None and high is not None:
                out[int(store[1] or "0", 16) // STRIDE] = low | high << 32
            continue
        if not operands or not re.match(r"U?R\d+$", operands[0]):
            continue
        written = _moved(opcode, operands[1:], registers, int(code[:8], 16))
        registers[operands[0]] = written[0]
        if _width(opcode) == 64:
            registers[_next(operands[0])] = written[1]
    return out


def _next(register: str) -> str:
    if register.endswith("Z"):
        return register
    prefix, number = re.match(r"(U?R)(\d+)", register).groups()
    return f"{prefix}{int(number) + 1}"


def _width(opcode: str) -> int:
    """Returns the bits that an opcode may write: 64 if in doubt."""
    parts = opcode.split(".")
    wide = {"CS2R", "DADD", "DMUL", "DFMA", "LDC", "LDG", "ULDC", "F2F", "I2F", "F2I", "LDCU", "MOV64", "UMOV64"}
    return 64 if parts[0] in wide or "WIDE" in parts or "64" in parts else 32


def _moved(
    opcode: str, sources: Sequence[str], registers: dict[str, int | None], immediate: int
) -> tuple[int | None, int | None]:
    """Returns the 32 bits, and the next 32, that a move of a constant writes; None for anything else. `immediate`: the
    bits of a constant in the instruction."""
    parts = opcode.split(".")
    name, values = parts[0], [_value(s, registers) for s in sources]
    if name in ("MOV", "UMOV") and "64" not in parts:
        return values[0], None
    if name == "IMAD" and ("MOV" in parts or parts[1:] == ["U32"]) and values[:2] == [0, 0]:
        return values[2], None
    if name == "CS2R" and sources == ["SRZ"]:
        return 0, 0 if "32" not in parts else None
    if name == "HFMA2" and sources[0] in ("-RZ", "RZ") and sources[1] == "RZ" and len(sources) == 4:
        return immediate, None  # a pair of halves, whose text hides the bits of a NaN
    return None, None


def _value(text: str, registers: dict[str, int | None]) -> int | None:
    """Returns the value of a register or of a number in machine code, as 32 bits."""
    if re.fullmatch(r"-?0x[0-9a-f]+|-?\d+", text):
        return int(text, 0) & 0xFFFFFFFF
    return registers.get(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
