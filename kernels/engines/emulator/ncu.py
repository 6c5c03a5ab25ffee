"""The CSV that Nsight Compute prints (`ncu --csv`), and its numbers beside the emulator's.

Two forms are read: a column for each metric, with a row of units below the names (`--page raw`), and a row for each metric
("Metric Name", "Metric Unit", "Metric Value"). Other lines, such as the profiled program's output, are skipped.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernels.engines.emulator import nsight
from kernels.engines.emulator.ptx.names import demangled
from kernels.model.program import RuleError

ID, KERNEL, NAME, UNIT, VALUE = "ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"
SIZES = ("Grid Size", "Block Size")
MAX_REPORT = 256 * 2**20  # bytes of a file
_SCALED = re.compile(r"([KMGT])(byte|sector|request|inst|cycle|thread|warp|branch)")
# Parts of a name that not every tool writes, and literals: true or 1, 16u or (unsigned int)16.
_UNWRITTEN = re.compile(
    r"\[abi:\w+\]|\(anonymous namespace\)::|<unnamed>::|\((?:unsigned |signed )?(?:int|bool|long|long long|short|char)\)"
)
_LITERAL = re.compile(r"\b(?:true|false|(\d+)[ul]*)\b")
_SCALE = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}  # ncu's Kbyte is 1,000 bytes


@dataclass
class Profiled:
    """A kernel launch in a report. `metrics`: their values in bytes, sectors, instructions. `grid`, `block`: () if unknown."""

    id: int
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A counter of the emulator beside the metrics that count the same. `ratio`: counted / measured, None if that is zero."""

    counter: str
    metrics: tuple[str, ...]
    counted: float
    measured: float
    ratio: float | None
    machine: bool  # the metrics count machine code, the counter PTX


@dataclass(frozen=True)
class Beside:
    """A measured launch beside the emulated one. `launches`: how many of the report have this kernel's name; the first one is
    compared. `missing`: metrics that the report lacks. `different`: the measured grid and block, if others were emulated."""

    report: str
    kernel: str
    id: int
    launches: int
    rows: tuple[Row, ...]
    missing: tuple[str, ...]
    different: str = ""

    def text(self) -> str:
        of = f"the first of {self.launches} launches" if self.launches > 1 else "the only launch"
        out = [f"\nmeasured beside counted: {self.kernel} in {self.report}, {of} (ID {self.id})"]
        out += [f"measured with {self.different}, so the numbers differ"] if self.different else []
        out.append(f"{'':22} {'counted':>14} {'measured':>14} {'counted / measured':>19}  metric of Nsight Compute")
        for row in self.rows:
            ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
            metrics = nsight.MATCHES[row.counter].text(less=False)
            out.append(f"{row.counter:22} {_shown(row.counted)} {_shown(row.measured)} {ratio:>19}  {metrics}")
        out += [f"not in the report: {', '.join(self.missing)}"] if self.missing else []
        return "\n".join(out)


def _shown(value: float) -> str:
    return f"{int(value):>14,}" if float(value).is_integer() else f"{value:>14,.2f}"


# -- reading -------------------------------------------------------------------------------------------------
def table(text: str) -> Iterator[dict[str, str]]:
    """Yields each row as its cells by column. The row of units has an empty ID. Nothing is yielded before a header."""
    header: list[str] | None = None
    reader = csv.reader(line for line in text.splitlines(keepends=True) if line.strip())
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:  # a line of the profiled program
            continue
        if ID in cells and KERNEL in cells:
            header = cells
        elif header is not None and len(cells) == len(header):
            yield dict(zip(header, cells, strict=True))


def number(cell: str) -> int | float | None:
    """Returns the number in a cell: 16,384 or 12.5 or 1.2e+06; None for anything else ("n/a", a name)."""
    try:
        value = float(cell.replace(",", ""))
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value


def read(path: Path) -> list[Profiled]:
    """Returns the launches of a report, in the order of their ID. RuleError if it is none; OSError."""
    with path.open("rb") as file:
        content = file.read(MAX_REPORT + 1)
    if len(content) > MAX_REPORT:
        raise RuleError(f"{path.name} has more than {MAX_REPORT:,} bytes: it is no output of ncu --csv")
    utf16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")  # as PowerShell writes a redirected output
    launches = profiled(content.decode("utf-16" if utf16 else "utf-8-sig", errors="replace"))
    if not launches:
        raise RuleError(
            f'{path.name} is no output of ncu --csv: it has no rows below a header with "{ID}" and "{KERNEL}"'
        )
    return launches


def profiled(text: str) -> list[Profiled]:
    """Returns the launches in an output of ncu, in the order of their ID."""
    launches: dict[int, Profiled] = {}
    units: Mapping[str, str] = {}
    for row in table(text):
        if not row[ID].strip().isdigit():
            units = row
            continue
        grid, block = (tuple(map(int, re.findall(r"\d+", row.get(column, "")))) for column in SIZES)
        launch = launches.setdefault(int(row[ID]), Profiled(int(row[ID]), row[KERNEL], grid, block))
        for name, unit, cell in _cells(row, units):
            value = number(cell)
            if value is not None:
                launch.metrics[name] = _in_base_units(value, unit)
    return [launches[n] for n in sorted(launches)]


def _cells(row: Mapping[str, str], units: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    """Returns the (metric, unit, value) of a row in one of the two forms."""
    if NAME in row:
        return [(row[NAME], row.get(UNIT, ""), row.get(VALUE, ""))]
    return [(name, units.get(name, ""), row[name]) for name in row.keys() & nsight.METRICS]


def _in_base_units(value: float, unit: str) -> float:
    """Returns a value in bytes, sectors ...: ncu scales large ones, "1.05 Mbyte", unless --print-units is base."""
    scaled = _SCALED.match(unit)
    return round(value * _SCALE[scaled[1]]) if scaled else value


# -- beside the emulator's ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Found:
    """The first launch of a kernel in a report, and how many it has."""

    report: str
    launch: Profiled
    launches: int

    def beside(self, sizes: Sequence[Sequence[int]], total: Mapping[str, float]) -> Beside:
        """Returns the measured numbers beside the emulator's. `sizes`: grid and block."""
        first = self.launch
        rows, missing = _rows(first.metrics, total)
        measured = (first.grid, first.block)
        same = all(not m or m == tuple(emulated) for m, emulated in zip(measured, sizes, strict=True))
        different = "" if same else f"grid {first.grid} and block {first.block}"
        return Beside(self.report, first.kernel, first.id, self.launches, rows, missing, different)


def find(path: Path, entry: str, name: str) -> Found:
    """Returns the launch of a kernel in a report. `entry`: its C++ name; `name`: that of the PTX. RuleError if the report
    has no such kernel or no metric that the emulator counts too; OSError."""
    launches = read(path)
    chosen = [launch for launch in launches if _is_called(launch.kernel, entry, name)]
    if not chosen:
        known = ", ".join(dict.fromkeys(launch.kernel for launch in launches))
        raise RuleError(f"{path.name} has no launch of {entry!r}; there are: {known}")
    if nsight.METRICS.isdisjoint(chosen[0].metrics):
        wanted = ",".join(metric for match in nsight.MATCHES.values() for metric in match.metrics)
        raise RuleError(
            f"{path.name} has no metric that the emulator counts too: measure with ncu --csv --page raw --metrics {wanted}"
        )
    return Found(path.name, chosen[0], len(chosen))


def _rows(metrics: Mapping[str, float], total: Mapping[str, float]) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Returns the counters whose metrics are known, and the other metrics. A metric of copies is missing only if the kernel
    copies."""
    rows, missing = [], []
    for counter, match in nsight.MATCHES.items():
        counted = match.counted(counter, total)
        if lacking := [metric for metric in match.metrics if metric not in metrics]:
            missing += lacking if counted or counter not in nsight.COPIES else []
            continue
        measured = sum(metrics[metric] for metric in match.metrics)
        rows.append(
            Row(counter, match.metrics, counted, measured, counted / measured if measured else None, match.machine)
        )
    return tuple(rows), tuple(missing)


def _is_called(kernel: str, entry: str, name: str) -> bool:
    """Returns whether a report's kernel is the emulated one. A report may leave out namespaces and template arguments."""
    full, known = _comparable(demangled(name)), _comparable(demangled(kernel))
    if full == name and name.startswith("_Z"):  # no C++ runtime here that demangles
        return kernel == name or any(f"::{form}".endswith(f"::{_comparable(entry)}") for form in (known, _bare(known)))
    return known in (full, _bare(full), _bare(full).rpartition("::")[2])


def _bare(name: str) -> str:
    """Returns a name without its template's arguments."""
    return name.partition("<")[0]


def _comparable(name: str) -> str:
    """Returns a C++ name without result, parameters, casts and blanks: "void f<(int)3, float>(T2 *)" -> "f<3,float>"."""
    text, depth = _UNWRITTEN.sub("", name), 0
    for at, c in enumerate(text):
        depth += (c == "<") - (c == ">")
        if c == "(" and not depth:
            text = text[:at]
            break
    text = re.sub(r"^[^<]*? (?=[\w:$]+(?:<|$))", "", text)
    return re.sub(r"\s+", "", _LITERAL.sub(lambda m: {"true": "1", "false": "0"}.get(m[0], m[1]), text))
