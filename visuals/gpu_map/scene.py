"""A launch on the whole GPU as a scene: its blocks on the SMs, wave by wave, and its bytes between the memories."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from kernels.i18n import tr
from visuals.charts import units
from visuals.charts.units import whole
from visuals.gpu_map import texts
from visuals.gpu_map.data import LEVELS, GpuMap, Kernel, Operand, Traffic
from visuals.gpu_map.waves import Cells, Waves, all_waves, cells_of, sm_of, steps, wave_count, wave_of
from visuals.scene.parts import Annotation, Captions, Flow, Group, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene
from visuals.scene.source import source_of

MAX_CELLS = 1024  # of a grid of blocks; several grids share them
MAX_GRIDS = 4  # launches whose grids are drawn
FOLLOWED = 2  # tiles of block 1 that are followed one by one
NO_TRAFFIC = Traffic()


def map_scene(m: GpuMap) -> Scene:
    """Returns the scene of a GPU map."""
    drawn = Steps(m)
    count = drawn.r.steps
    return Scene(
        key=f"map {m.key}",
        title=m.title,
        tensors=_tensors(m, drawn.cells),
        groups=_groups(m, drawn.cells),
        steps=count,
        step_name=tr("step"),
        order_name=tr(texts.ORDER),
        order_note=tr(texts.ORDER_NOTE),
        writes=drawn.r.writes(),
        reads=drawn.r.reads(),
        captions=Captions(tuple(drawn.captions), np.arange(count), np.zeros((count, 1), int)),
        flows=tuple(_flows(drawn)),
        annotations=(*_of_blocks(m, drawn.cells), _of_sms(m)),
        source=(m.source and source_of(m.source, (re.compile(rf"\b{m.entry}\("),), np.zeros(1, int), detail=m.detail)) or None,
    )  # fmt: skip


class Steps:
    """The steps of a map: sentences, what is written and read at each, and the bytes on the arrows."""

    def __init__(self, m: GpuMap):
        self.m, self.r = m, Recorder()
        self.captions: list[str] = []
        self.traffic: list[Traffic] = []  # on the arrows at each step
        self.scope: list[str] = []  # what that is of: texts.ALL, LAUNCH or TILE
        self.active: list[tuple[int, ...]] = []  # arrows in use: level for reads, LEVELS + level for writes
        most = MAX_CELLS // min(len(m.kernels), MAX_GRIDS)
        self.cells = [cells_of(k.blocks.grid, most) for k in m.kernels[:MAX_GRIDS]]
        self._add_steps()

    def _step(
        self, text: str, active: Iterable[int] = (), traffic: Traffic | None = None, scope: str = texts.ALL
    ) -> None:
        self.r.step(len(self.captions))
        self.captions.append(text.replace("{", "{{").replace("}", "}}"))
        self.traffic.append(traffic or self.m.total)
        self.scope.append(scope)
        self.active.append(tuple(active))

    def _add_steps(self) -> None:
        m, first = self.m, self.m.kernels[0]
        self._step(texts.start(m))
        for wave in steps(first.blocks.count, m.gpu.sms, first.blocks.resident):
            self._step(texts.waves(wave, first.blocks, m.gpu))
            self._place(0, wave)
        self._follow(first)
        self._complete(first)
        for n, kernel in enumerate(m.kernels[1:], 1):
            self._later_launch(n, kernel)
        self._step(texts.total(m), range(2 * LEVELS))

    def _place(self, n: int, wave: Waves) -> None:
        """Put the blocks of a step on the SMs, and the number of their wave into the cells that are complete."""
        kernel, sms = self.m.kernels[n], self.m.gpu.sms
        self.r.put("sms", wave.on_sm)
        if n >= len(self.cells):
            return
        last = self.cells[n].last_block(kernel.blocks.count)
        cells = np.flatnonzero((last >= wave.start) & (last < wave.stop))
        self.r.put(f"blocks{n}", wave_of(last[cells], sms, kernel.blocks.resident) + 1, cells)

    # -- block 1 ---------------------------------------------------------------------------------
    def _follow(self, kernel: Kernel) -> None:
        m = self.m
        if kernel.once:
            self._step(texts.once(m, kernel), (0, 1), kernel.once_traffic, texts.TILE)
            self._copy(kernel.once, 0, "l2", "sm")
        for tile in range(min(kernel.tiles, FOLLOWED)):
            self._step(texts.into_l2(m, kernel, tile), (0,), kernel.tile, texts.TILE)
            self._copy(kernel.reads, tile, "l2")
            self._step(texts.onto_sm(m, kernel, tile), (1,), kernel.tile, texts.TILE)
            self._copy(kernel.reads, tile, "sm")
            self._step(texts.into_registers(m, kernel, tile), (2,), kernel.tile, texts.TILE)
            self._copy(kernel.reads, tile, "thread")
            self.r.put("sums", np.full(kernel.sums, tile + 1))
        if kernel.tiles > FOLLOWED:
            self._step(texts.more_tiles(kernel, FOLLOWED), range(LEVELS))
            self.r.put("sums", np.full(kernel.sums, kernel.tiles))
        self._step(texts.store(m, kernel), range(LEVELS, 2 * LEVELS))
        output = m.operands[kernel.writes]
        self.r.put(kernel.writes, [output.stored], output.pieces[:1])

    def _copy(self, names: Iterable[str], tile: int, *levels: str) -> None:
        """Copy the tile of each operand from HBM into its places at these levels, where it has one."""
        self.r.look("blocks0", np.zeros(1, int))
        for name in names:
            operand = self.m.operands[name]
            cell = int(operand.pieces[min(tile, len(operand.pieces) - 1)])
            for level in levels:
                if place := _place_at(operand, level):
                    source = {"l2": name, "sm": f"l2_{name}", "thread": f"sm_{name}"}[level]
                    index = np.full(place[0] * place[1], cell if level == "l2" else 0)
                    self.r.copy(f"{level}_{name}", source, index)

    # -- whole launches ---------------------------------------------------------------------------
    def _complete(self, kernel: Kernel) -> None:
        """Write the output of the other blocks, in the step of the launch's bytes if others follow."""
        if len(self.m.kernels) > 1:
            self._step(texts.launch_bytes(self.m, 0, kernel), (0, 3), kernel.total, texts.LAUNCH)
        elif kernel.blocks.count > 1:
            self._step(texts.others(kernel), range(2 * LEVELS))
        self._write_all(kernel)

    def _later_launch(self, n: int, kernel: Kernel) -> None:
        gpu, blocks = self.m.gpu, kernel.blocks
        self._step(texts.later_launch(self.m, n, kernel), (), kernel.total, texts.LAUNCH)
        self._place(n, all_waves(blocks.count, gpu.sms, blocks.resident))
        self._step(texts.launch_bytes(self.m, n, kernel), (0, 3), kernel.total, texts.LAUNCH)
        for name in kernel.reads:
            operand = self.m.operands[name]
            self.r.look(name, np.arange(operand.rows * operand.cols))
        self._write_all(kernel)

    def _write_all(self, kernel: Kernel) -> None:
        output = self.m.operands[kernel.writes]
        self.r.put(output.name, np.full(output.rows * output.cols, output.stored))


def _place_at(operand: Operand, level: str) -> tuple[int, int] | None:
    """Returns the rows and columns in which a tile of an operand is drawn at a level; None if it is not drawn there."""
    if operand.tile is None:
        return None
    return {"l2": (1, 1), "sm": operand.tile.on_sm, "thread": operand.tile.registers}[level]


# -- tensors -------------------------------------------------------------------------------------------
def _tensors(m: GpuMap, cells: list[Cells]) -> tuple[Tensor, ...]:
    return (
        *_launch_tensors(m, cells),
        *(t for o in m.operands.values() for t in _of_operand(m, o)),
        _sums(m),
    )


def _launch_tensors(m: GpuMap, cells: list[Cells]) -> list[Tensor]:
    found = []
    for n, (kernel, grid) in enumerate(zip(m.kernels, cells, strict=False)):
        title = tr("blocks") if len(m.kernels) == 1 else tr("blocks of launch {n}", n=n + 1)
        note = whole(kernel.blocks.count)
        if grid.each > 1:
            note += tr(", {n} in a cell", n=whole(grid.each))
        found.append(Tensor(f"blocks{n}", "block", title, "output", 1, grid.rows, grid.cols, note=note))
    sms = m.gpu.sms
    note = tr("{n}, with the blocks on each", n=sms)
    found.append(
        Tensor("sms", "SM", tr("SMs"), "workspace", 1, -(-sms // across(sms)), across(sms), note=note)
    )
    return found


def across(sms: int) -> int:
    """Returns how many SMs are drawn in a row: full rows, if these are not much wider than high."""
    side = int(np.ceil(sms**0.5))
    return next((n for n in range(side, 2 * side) if sms % n == 0), side)


def _of_operand(m: GpuMap, o: Operand) -> list[Tensor]:
    found = [Tensor(o.name, o.title, o.title, o.role, 1, o.rows, o.cols, o.values, note=o.note)]
    for level in ("l2", "sm", "thread"):
        if place := _place_at(o, level):
            name = f"{level}_{o.name}"
            note = o.tile.note if level == "sm" else ""
            found.append(Tensor(name, o.title, o.title, o.role, 1, *place, note=note))
    return found


def _sums(m: GpuMap) -> Tensor:
    kernel = m.kernels[0]
    role = m.operands[kernel.writes].role
    title = tr("results")
    return Tensor("sums", title, title, role, 1, *kernel.sums, note=kernel.sums_note)


def _groups(m: GpuMap, cells: list[Cells]) -> tuple[Group, ...]:
    """Returns the launch with its SMs, then the memories from the largest to the nearest. Flows join the last four."""
    at = {
        level: [o.name for o in m.operands.values() if _place_at(o, level)]
        for level in ("l2", "sm", "thread")
    }
    gpu = m.gpu
    blocks = tuple(f"blocks{n}" for n in range(len(cells)))
    near = tr("shared memory of one SM") if m.shared else tr("L1 cache of one SM")
    return (
        Group(((*blocks, "sms"),), "global", tr("the launch on the {gpu}", gpu=gpu.name)),
        Group((tuple(m.operands),), "global", _sized(tr("HBM (global memory)"), gpu.hbm)),
        Group((tuple(f"l2_{name}" for name in at["l2"]),), "global", _sized(tr("L2 cache"), gpu.l2)),
        Group((tuple(f"sm_{name}" for name in at["sm"]),), "shared", _sized(near, gpu.shared if m.shared else None)),
        Group(((*(f"thread_{name}" for name in at["thread"]), "sums"),), "registers", tr("registers of one thread")),
    )  # fmt: skip


def _sized(name: str, size: int | None) -> str:
    return name if size is None else f"{name}, {units.bytes_(size)}"


# -- arrows ----------------------------------------------------------------------------------------------
def _flows(drawn: Steps) -> Iterable[Flow]:
    """Yields, for each part of the way, the arrow of what is read and that of what is written."""
    for level in range(LEVELS):
        for written in (0, 1):
            labels = [_label(drawn, step, level, written) for step in range(drawn.r.steps)]
            known = tuple(dict.fromkeys(labels))
            ends = (level + 2, level + 1) if written else (level + 1, level + 2)
            active = [level + written * LEVELS in active for active in drawn.active]
            yield Flow(*ends, known, np.array([known.index(text) for text in labels]), np.array(active, int))


def _label(drawn: Steps, step: int, level: int, written: int) -> str:
    traffic, scope = drawn.traffic[step], drawn.scope[step]
    if written and scope == texts.TILE:
        return ""
    return texts.label((traffic.written if written else traffic.read)[level], scope)


# -- what a cell stands for --------------------------------------------------------------------------------
def _of_blocks(m: GpuMap, cells: list[Cells]) -> Iterable[Annotation]:
    for n, (kernel, grid) in enumerate(zip(m.kernels, cells, strict=False)):
        first = np.minimum(np.arange(grid.rows * grid.cols) * grid.each, kernel.blocks.count - 1)
        last = np.minimum(first + grid.each, kernel.blocks.count) - 1
        fits = m.gpu.sms, kernel.blocks.resident
        args = np.stack(
            [
                first + 1,
                last + 1,
                wave_of(first, *fits) + 1,
                wave_of(last, *fits) + 1,
                sm_of(first, *fits) + 1,
            ],
            1,
        )
        one, more = tr("Block {0}: wave {2}, on SM {4}."), tr("Blocks {0} to {1}: waves {2} to {3}.")
        kind = np.full(len(first), int(grid.each > 1))
        yield Annotation(f"blocks{n}", Captions((one, more), kind, args))


def _of_sms(m: GpuMap) -> Annotation:
    """Returns how many blocks each SM runs in all waves of the first launch."""
    blocks, gpu = m.kernels[0].blocks, m.gpu
    waves = wave_count(blocks.count, gpu.sms, blocks.resident)
    last = all_waves(blocks.count, gpu.sms, blocks.resident).on_sm
    in_all = (waves - 1) * blocks.resident + last
    size = -(-gpu.sms // across(gpu.sms)) * across(gpu.sms)
    args = np.stack([np.arange(size) + 1, np.pad(in_all, (0, size - gpu.sms))], 1)
    return Annotation(
        "sms", Captions((tr("SM {0} runs {1} blocks of the first launch."),), np.zeros(size, int), args)
    )
