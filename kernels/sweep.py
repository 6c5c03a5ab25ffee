"""The sweep behind a recording: every rung at every preset, batch and tile size, into a file that can be resumed."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernels import engines
from kernels.cases import Case
from kernels.conv import networks
from kernels.conv import presets as conv_presets
from kernels.conv.backward import presets as backward_presets
from kernels.conv.shape import ConvShape
from kernels.ladders import LADDERS, ladder_of
from kernels.machine import memory_levels
from kernels.machine.timing import Budget
from kernels.model.program import Program, RuleError, Tiles
from kernels.model.row import Json, Row
from kernels.model.rung import Ladder, Rung
from kernels.model.shape import Shape
from kernels.records import Gpu, availability, files, levels, rows, unsupported
from kernels.records import row as records_row
from kernels.records.jsontext import RowError, canonical, load
from kernels.records.row import digest_of, is_current, kernel_digest
from kernels.runner import VerificationError, compare

# Presets that are recorded only if their group is named: cold, at the tile sizes for each shape.
GROUPS = {
    "grid": conv_presets.CONV_GRID,
    "networks": networks.LAYERS,
    "padding": conv_presets.CONV_PADDING,
    "backward-padding": backward_presets.BACKWARD_PADDING,
}
BACKWARD = {"backward-padding": ("conv-dinput", "conv-dweight")}  # the ladders of a group; else "conv"
# With few samples, in brief rows (records.brief): they are many, and a map or a sum needs only their times.
BRIEF = ("grid", "networks")
FEW = 30  # samples


@dataclass(frozen=True)
class Sweep:
    """What is measured. `presets` and `batches` empty: every preset, at its own batch alone. A name of GROUPS in
    `presets` means each preset of the group. `ladders` empty: all. With `cases` nothing else is measured. `runs` decides
    which rungs can run a shape: on this machine, or on another one (`by_rules`)."""

    engine: str
    presets: Sequence[str] = ()
    modes: Sequence[str] = ("cold",)
    batches: Sequence[int] = ()
    budget: Budget = field(default_factory=Budget)
    cases: Sequence[Case] = ()
    ladders: Sequence[str] = ()
    runs: Callable[[Rung, Shape, Tiles, str], bool] = availability.runs

    def groups(self) -> Iterator[Group]:
        """Each comparison: rungs at one shape, tile choice and mode. A shape that two presets share comes once."""
        if self.cases:
            yield from self._of_cases()
            return
        for ladder in LADDERS.values():
            seen = set()
            if self.engine not in ladder.engines or not self._has(ladder):
                continue
            for key, preset in ladder.presets.items():
                if self.presets and key not in self.presets:
                    continue
                batches = self.batches if isinstance(preset.shape, ConvShape) else ()  # elsewhere N is no batch
                for shape in (preset.shape, *(preset.shape.with_(N=n) for n in batches)):
                    if shape in seen:
                        continue
                    seen.add(shape)
                    swept = ladder.swept is None or key in ladder.swept
                    for mode in self.modes:
                        for rungs, tiles in candidates(ladder.rungs, shape, self.engine, self.runs):
                            wanted = swept or not (tiles or mode == "hot")
                            if wanted and not (tiles and mode == "hot"):  # tile sizes are compared cold
                                yield Group(ladder, tuple(rungs), shape, tiles, mode)
        yield from self._by_name()

    def _has(self, ladder: Ladder) -> bool:
        return not self.ladders or ladder.name in self.ladders

    def _of_cases(self) -> Iterator[Group]:
        """At the shape of each case every rung at its tile sizes for the shape, then the case's rung at its own."""
        for mode in self.modes:
            for name, shape in dict.fromkeys((ladder_of(c.rung).name, c.shape) for c in self.cases):
                ladder = LADDERS[name]
                if names := [rung.name for rung in availability.supported_rungs(ladder, self.engine, shape)]:
                    yield Group(ladder, tuple(names), shape, {}, mode)
            for case in self.cases:
                if case.tiles != ladder_of(case.rung).rung(case.rung).tiles_at(case.shape):
                    yield Group(ladder_of(case.rung), (case.rung,), case.shape, dict(case.tiles), mode)

    def _by_name(self) -> Iterator[Group]:
        """Each comparison of the groups that are named. A shape that two of them share comes once."""
        seen = set()
        for name in self.presets:
            for preset in GROUPS.get(name, {}).values():
                for ladder in filter(self._has, (LADDERS[of] for of in BACKWARD.get(name, ("conv",)))):
                    setting, s = (ladder.name, preset.shape), preset.shape
                    rungs = [r for r in ladder.rungs if self.runs(r, s, r.tiles_at(s), self.engine)]
                    if rungs and setting not in seen:
                        names = tuple(rung.name for rung in rungs)
                        yield Group(ladder, names, preset.shape, {}, "cold", brief=name in BRIEF)
                    seen.add(setting)


@dataclass(frozen=True)
class Group:
    """Rungs whose samples are interleaved, all at one shape: each at its tile sizes for that shape, with `tiles` changed."""

    ladder: Ladder
    rungs: tuple[str, ...]
    shape: Shape
    tiles: dict[str, int]
    mode: str
    brief: bool = False

    def budget(self, usual: Budget) -> Budget:
        return replace(usual, samples=min(usual.samples, FEW)) if self.brief else usual

    def program(self, rung: str) -> Program:
        """What a rung of it runs."""
        return self.ladder.rung(rung).build(self.shape, self.tiles_of(rung))

    def refusal(self, engine: str, rung: str) -> str:
        """Returns why this machine cannot run one of its rungs; "" if it can."""
        return engines.refusal(engine, self.ladder.rung(rung), self.shape, self.tiles_of(rung))

    def key(self, rung: str, device: str) -> tuple:
        """What a row must agree in to be the one that this group would measure."""
        full, digest = self.tiles_of(rung), kernel_digest(self.program(rung))
        return rung, canonical(self.shape.params()), canonical(full), self.mode, device, digest

    def tiles_of(self, rung: str) -> dict[str, int]:
        """Returns all tile sizes that one of its rungs runs with."""
        found = self.ladder.rung(rung)
        changed = {name: v for name, v in self.tiles.items() if name in found.tiles}
        return found.check(self.shape, found.tiles_at(self.shape) | changed)

    def __str__(self) -> str:
        tiles = " ".join(f"{name} {value}" for name, value in self.tiles.items())
        return " ".join(filter(None, (", ".join(self.rungs), str(self.shape), tiles, self.mode)))


@dataclass(frozen=True)
class Progress:
    """One row of the sweep, or a note on why there is none."""

    row: Row | None
    note: str
    done: int
    total: int
    left_s: float | None  # by what was measured so far; None before that


def by_rules(rung: Rung, shape: Shape, tiles: Tiles, engine: str) -> bool:
    """Returns whether an engine can run a rung at a shape and tile sizes on some machine: by its rules alone."""
    return not (rung.why_not_on(engine) or any(rung.rules(shape, tiles)))


def candidates(
    rungs: Iterable[Rung],
    shape: Shape,
    engine: str,
    runs: Callable[[Rung, Shape, Tiles, str], bool] = availability.runs,
) -> Iterator[tuple[list[str], dict[str, int]]]:
    """Yields every rung at its tile sizes for the shape, together; then its other sets, one at a time, as what they change.
    A rung that the engine does not run, or that cannot run the shape, is left out. So are sets that an engine computes in
    the same way as one before."""
    supported = [r for r in rungs if runs(r, shape, r.tiles_at(shape), engine)]
    if supported:
        yield [r.name for r in supported], {}
    for rung in supported:
        usual = rung.tiles_at(shape)
        for tiles in rung.distinct((usual, *rung.tile_sets(shape)), engine)[1:]:
            yield [rung.name], {name: v for name, v in tiles.items() if v != usual[name]}


def record(out: Path, sweep: Sweep, made_at: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Progress]:
    """Measures what `out` does not contain yet, writes each row to it as a line of JSON and yields each.

    A comparison that `out` contains whole, of this device and of the kernels in the tree, is not measured again, so an
    interrupted sweep continues. If it lacks a row, all its rungs are measured: their rows come from one run. A row moves
    to `out`.superseded when its replacement is there, a row of other kernels at once; nothing measured is deleted. What a
    vendor's library does not support is stored beside `out` (kernels.records.unsupported).
    """
    machine = engines.load(sweep.engine)
    if not machine.MEASURES:
        raise RuleError(f"the {sweep.engine} engine counts, it takes no times to record")
    status = machine.status()
    if not status.ready:
        raise RuleError(f"engine {sweep.engine!r} cannot run here: {status.text}")
    recorded = {_key(row) for row in _tidied(out)}
    refusals = unsupported.UnsupportedFile(out, status.text, machine.conditions)
    groups = list(sweep.groups())
    missing = [_to_measure(g, sweep.engine, status.text, recorded, refusals) for g in groups]
    total = sum(len(g.rungs) for g in groups)
    done = total - sum(map(len, missing))
    if done:
        yield Progress(None, f"{done} of {total} were there already", done, total, None)
    start, resumed = clock(), done
    for group, rungs in zip(groups, missing, strict=True):
        found = list(_measured(group, rungs, sweep, refusals, made_at))
        fresh = [row for row, _ in found if row]
        if fresh:
            _write_levels(out, sweep.engine, fresh[0])
            _write(out, fresh, recorded)
        for row, note in found:
            done += 1 if row else note.rungs
            left = (clock() - start) / (done - resumed) * (total - done) if row else None
            yield Progress(row, note.text, done, total, left)


def _write(out: Path, fresh: Sequence[Json], recorded: set[tuple]) -> None:
    """Appends rows to `out`, in place of those of the same setting, by their keys, that were recorded before."""
    if replaced := recorded & set(map(_key, fresh)):
        _tidied(out, lambda row: _key(row) not in replaced)
    with out.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in fresh)


def _to_measure(
    group: Group, engine: str, device: str, recorded: set[tuple], refusals: unsupported.UnsupportedFile
) -> list[str]:
    """Returns the rungs of a comparison if one that this machine can run has no row, else none."""
    rungs = [r for r in group.rungs if (r, group.shape) not in refusals]
    lacks = (r for r in rungs if group.key(r, device) not in recorded and not group.refusal(engine, r))
    return rungs if any(lacks) else []


def _write_levels(out: Path, engine: str, row: Row) -> None:
    """Writes the levels of this GPU's memory beside a recording that has none."""
    path = levels.path_beside(out)
    if engine == "cuda" and not path.exists() and (here := memory_levels.gpu(engines.load(engine).status())):
        found = here.with_copy(row.get("ceilings"))
        memory_levels.write(path, replace(found, date=row["date"]))


# -- what is missing -------------------------------------------------------------------------------
@dataclass(frozen=True)
class Missing:
    """The settings of a sweep that a GPU has no row of, or only one that older kernels made."""

    gpu: Gpu
    file: Path  # of its recording
    rungs: Mapping[str, int]  # how many settings each rung lacks
    total: int  # of the sweep
    superseded: int  # rows of the file that older kernels made


def missing(gpu: Gpu, sweep: Sweep) -> Missing:
    """Returns what a recording of a GPU lacks. A shape that the GPU's library does not support is not missing, nor, on
    the machine that has the GPU, a rung that it cannot run."""
    mine = [row for of, row in files.read() if of == gpu]
    current = {_key(row) for row in mine if is_current(row)}
    here = engines.load(sweep.engine).status()
    is_here = here.ready and here.text == gpu.device
    found, total = Counter(), 0
    for group in replace(sweep, runs=by_rules).groups():
        for rung in group.rungs:
            if unsupported.recorded(rung, group.shape, gpu) or (is_here and group.refusal(sweep.engine, rung)):
                continue
            total += 1
            found[rung] += group.key(rung, gpu.device) not in current
    superseded = len(mine) - sum(map(is_current, mine))
    return Missing(gpu, files.path_of(gpu), {r: n for r, n in found.items() if n}, total, superseded)


@dataclass(frozen=True)
class _Note:
    """Why `rungs` rungs have no row."""

    text: str = ""
    rungs: int = 1


def _measured(
    group: Group, rungs: Sequence[str], sweep: Sweep, refusals: unsupported.UnsupportedFile, made_at: str
) -> Iterator[tuple[Json | None, _Note]]:
    """Yields the row of each rung of a group that this machine measured, or a note on why there is none."""
    reasons = {r: group.refusal(sweep.engine, r) for r in rungs}
    for rung in filter(reasons.get, rungs):
        yield None, _Note(f"left out {rung} {group.shape}: {reasons[rung]}")
    rungs = [r for r in rungs if not reasons[r]]
    if not rungs:
        return

    def refused(rung: str, reason: str) -> None:
        refusals.add(rung, group.shape, reason)

    try:
        results = compare(
            rungs,
            group.shape,
            engine=sweep.engine,
            tiles={r: group.tiles_of(r) for r in rungs},
            mode=group.mode,
            budget=group.budget(sweep.budget),
            refused=refused,
        )
    except (RuleError, VerificationError) as e:  # too large for this machine's memory, or wrong
        yield None, _Note(f"left out {group}: {e}", len(rungs))
        return
    for rung in rungs:
        if (rung, group.shape) in refusals:
            yield None, _Note(f"{rung} {group.shape}: {refusals[rung, group.shape]}")
    for result in results:
        program = group.ladder.rung(result.rung).build(group.shape, result.tiles)
        row = records_row.row(result, program, made_at)
        yield (records_row.brief(row) if group.brief else row), _Note()


def _tidied(out: Path, keeps: Callable[[Json], bool] = is_current) -> list[Json]:
    """Returns the rows of `out` that it keeps: those that the kernels in the tree made. A line cut short by an
    interruption is dropped, other rows are moved."""
    if not out.exists():
        return []
    if not out.is_file():
        raise RuleError(f"{out} is no file that a recording can be kept in")
    try:
        lines = out.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise RuleError(f"{out} is no recording: a recording is text, a row of JSON on each line") from None
    good, old = [], []
    for number, line in enumerate(lines, 1):
        try:
            row = load(line)
            rows.check(row)
        except RowError as e:
            if number == len(lines) and line.startswith("{"):
                continue
            raise RuleError(f"{out}, line {number}: {e}") from None
        (good if keeps(row) else old).append((line, row))
    if len(good) < len(lines):
        if old:
            with Path(f"{out}.superseded").open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line, _ in old)
        fresh = Path(f"{out}.new")
        fresh.write_text("".join(f"{line}\n" for line, _ in good), encoding="utf-8")
        os.replace(fresh, out)
    elif lines and not out.read_text(encoding="utf-8").endswith("\n"):
        with out.open("a", encoding="utf-8") as file:
            file.write("\n")
    return [row for _, row in good]


def _key(row: Row) -> tuple:
    return (row["rung"], canonical(row["shape"]), canonical(row["tiles"]), row["mode"], row["device"], digest_of(row))
