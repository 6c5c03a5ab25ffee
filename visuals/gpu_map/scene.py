"""A launch on the whole GPU as a scene: its blocks on the SMs, wave by wave, and its bytes between the memories."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kernels.i18n import tr
from visuals import units
from visuals.gpu_map import texts
from visuals.gpu_map.data import LEVELS, GpuMap, Kernel, Operand, Traffic
from visuals.gpu_map.waves import Cells, Waves, all_waves, cells_of, sm_of, steps, wave_count, wave_of
from visuals.scene.parts import Annotation, Captions, Flow, Group, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene
from visuals.units import whole

MAX_CELLS = 1024  # of the grid of blocks
IN_L2 = (2, 4)  # rows and columns in which a tile is drawn in L2
FOLLOWED = 2  # tiles of block 0 that are followed one by one


def map_scene(m: GpuMap) -> Scene:
    drawn = GpuMapSteps(m)
    count = drawn.r.steps
    return Scene(
        key=f"map {m.key}",
        title=m.title,
        tensors=_tensors(m, drawn.cells),
        groups=_groups(m),
        steps=count,
        step_name=tr("step"),
        order_name=tr(texts.ORDER),
        order_note=tr(texts.ORDER_NOTE),
        writes=drawn.r.writes(),
        reads=drawn.r.reads(),
        captions=Captions(tuple(drawn.captions), np.arange(count), np.zeros((count, 1), int)),
        flows=tuple(_flows(drawn)),
        annotations=(_of_blocks(m, drawn.cells), _of_sms(m)),
    )


class GpuMapSteps:
    """The steps of a map: sentences, what is written and read at each, and the bytes on the arrows."""

    def __init__(self, m: GpuMap):
        self.m, self.r = m, Recorder()
        self.captions: list[str] = []
        self.traffic: list[Traffic] = []  # on the arrows at each step
        self.scope: list[str] = []  # what that is of: texts.ALL, LAUNCH or TILE
        self.active: list[tuple[int, ...]] = []  # arrows in use: level for reads, LEVELS + level for writes
        self.cells = cells_of(m.kernels[0].blocks.grid, MAX_CELLS)  # of the first launch
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
            self._place(first, wave)
        self._follow(first)
        self._complete(first)
        for n, kernel in enumerate(m.kernels[1:], 1):
            self._later_launch(n, kernel)
        self._step(texts.total(m), range(2 * LEVELS))

    def _place(self, kernel: Kernel, wave: Waves) -> None:
        """Put the blocks of a step on the SMs, and the number of their wave into the cells that are complete."""
        self.r.put("sms", wave.on_sm)
        last = self.cells.last_block(kernel.blocks.count)
        cells = np.flatnonzero((last >= wave.start) & (last < wave.stop))
        self.r.put("blocks", wave_of(last[cells], self.m.gpu.sms, kernel.blocks.resident) + 1, cells)

    # -- block 0 ---------------------------------------------------------------------------------
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
            self.r.put("sums", np.full(kernel.sums, tile + 1))
        if kernel.tiles > FOLLOWED:
            self._step(texts.more_tiles(kernel, FOLLOWED), range(LEVELS))
            self.r.put("sums", np.full(kernel.sums, kernel.tiles))
        self._step(texts.store(m, kernel), range(LEVELS, 2 * LEVELS))
        output = m.operands[kernel.writes]
        self.r.put(kernel.writes, [output.stored], output.pieces[:1])

    def _copy(self, names: Iterable[str], tile: int, *levels: str) -> None:
        """Copy the tile of each operand from HBM into its places at these levels, where it is drawn there."""
        self.r.look("blocks", np.zeros(1, int))
        for operand in (self.m.operands[name] for name in names):
            if not operand.tile:
                continue
            if "l2" in levels:
                piece = operand.pieces[min(tile, len(operand.pieces) - 1)]
                self.r.copy(f"l2_{operand.name}", operand.name, np.full(IN_L2[0] * IN_L2[1], piece))
            if "sm" in levels:
                rows, cols = operand.tile.on_sm
                self.r.copy(f"sm_{operand.name}", f"l2_{operand.name}", np.zeros(rows * cols, int))

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
        self.r.put("sms", all_waves(blocks.count, gpu.sms, blocks.resident).on_sm)
        self._step(texts.launch_bytes(self.m, n, kernel), (0, 3), kernel.total, texts.LAUNCH)
        for name in kernel.reads:
            operand = self.m.operands[name]
            self.r.look(name, np.arange(operand.rows * operand.cols))
        self._write_all(kernel)

    def _write_all(self, kernel: Kernel) -> None:
        output = self.m.operands[kernel.writes]
        self.r.put(output.name, np.full(output.rows * output.cols, output.stored))


# -- tensors -------------------------------------------------------------------------------------------
def _tensors(m: GpuMap, cells: Cells) -> tuple[Tensor, ...]:
    blocks, sms = m.kernels[0].blocks, m.gpu.sms
    title = tr("blocks") if len(m.kernels) == 1 else tr("blocks of launch 1")
    note = tr("{blocks}, {n} in a cell", blocks=whole(blocks.count), n=whole(cells.each))
    rows, note_of_sms = -(-sms // across(sms)), tr("{n} SMs", n=sms)
    return (
        Tensor(
            "blocks",
            "block",
            title,
            "output",
            1,
            cells.rows,
            cells.cols,
            note=note if cells.each > 1 else whole(blocks.count),
        ),
        Tensor("sms", "SM", tr("blocks on an SM"), "workspace", 1, rows, across(sms), note=note_of_sms),
        *(tensor for operand in m.operands.values() for tensor in _of_operand(operand)),
        _sums(m),
    )


def across(sms: int) -> int:
    """Returns how many SMs are drawn in a row: full rows, if these are not much wider than high."""
    side = int(np.ceil(sms**0.5))
    return next((n for n in range(side, 2 * side) if sms % n == 0), side)


def _of_operand(o: Operand) -> list[Tensor]:
    """Returns an operand in HBM and, if it is loaded in tiles, its tile in L2 and on an SM."""
    found = [Tensor(o.name, o.title, o.title, o.role, 1, o.rows, o.cols, o.values, note=o.note)]
    if o.tile:
        in_l2 = tr("{name} in L2", name=o.title)
        found.append(Tensor(f"l2_{o.name}", in_l2, in_l2, o.role, 1, *IN_L2))
        found.append(Tensor(f"sm_{o.name}", o.title, o.title, o.role, 1, *o.tile.on_sm, note=o.tile.note))
    return found


def _sums(m: GpuMap) -> Tensor:
    kernel = m.kernels[0]
    role = m.operands[kernel.writes].role
    title = tr("results")
    return Tensor("sums", title, title, role, 1, *kernel.sums, note=kernel.sums_note)


def _groups(m: GpuMap) -> tuple[Group, ...]:
    """Returns the launch with its SMs, then the memories from the largest to the nearest. Flows join the last four."""
    tiled = [o.name for o in m.operands.values() if o.tile]
    gpu = m.gpu
    near = tr("shared memory of one SM") if m.shared else tr("L1 cache of one SM")
    on_sm = tuple(f"sm_{name}" for name in tiled)
    return (
        Group((("blocks", "sms"),), "global", tr("the launch on the {gpu}", gpu=gpu.name)),
        Group((tuple(m.operands),), "global", _sized(tr("HBM (global memory)"), gpu.hbm), column=False),
        Group((tuple(f"l2_{name}" for name in tiled),), "global", _sized(tr("L2 cache"), gpu.l2)),
        Group((on_sm,), "shared", _sized(near, gpu.shared if m.shared else None), column=False),
        Group((("sums",),), "registers", tr("registers of one thread"), column=False),
    )


def _sized(name: str, size: int | None) -> str:
    return name if size is None else f"{name}, {units.bytes_(size)}"


# -- arrows ----------------------------------------------------------------------------------------------
def _flows(drawn: GpuMapSteps) -> Iterable[Flow]:
    """Yields, for each part of the way, the arrow of what is read and that of what is written."""
    for level in range(LEVELS):
        for written in (0, 1):
            labels = [_label(drawn, step, level, written) for step in range(drawn.r.steps)]
            known = tuple(dict.fromkeys(labels))
            ends = (level + 2, level + 1) if written else (level + 1, level + 2)
            active = [level + written * LEVELS in active for active in drawn.active]
            yield Flow(*ends, known, np.array([known.index(text) for text in labels]), np.array(active, int))


def _label(drawn: GpuMapSteps, step: int, level: int, written: int) -> str:
    traffic, scope = drawn.traffic[step], drawn.scope[step]
    if written and scope == texts.TILE:
        return ""
    return texts.label((traffic.written if written else traffic.read)[level], scope, bool(written))


# -- what a cell stands for --------------------------------------------------------------------------------
def _of_blocks(m: GpuMap, cells: Cells) -> Annotation:
    blocks, gpu = m.kernels[0].blocks, m.gpu
    first = np.minimum(np.arange(cells.rows * cells.cols) * cells.each, blocks.count - 1)
    last = np.minimum(first + cells.each, blocks.count) - 1
    fits = gpu.sms, blocks.resident
    waves = [wave_of(of, *fits) + 1 for of in (first, last)]
    args = np.stack([first, last, *waves, sm_of(first, *fits)], 1)
    templates = (
        tr("Block {0}: wave {2}, on SM {4}."),
        tr("Blocks {0} to {1}: wave {2}."),
        tr("Blocks {0} to {1}: waves {2} to {3}."),
    )
    kind = np.where(args[:, 0] == args[:, 1], 0, np.where(args[:, 2] == args[:, 3], 1, 2))
    return Annotation("blocks", Captions(templates, kind, args))


def _of_sms(m: GpuMap) -> Annotation:
    """Returns how many blocks each SM runs in all waves of the first launch."""
    blocks, gpu = m.kernels[0].blocks, m.gpu
    waves = wave_count(blocks.count, gpu.sms, blocks.resident)
    last = all_waves(blocks.count, gpu.sms, blocks.resident).on_sm
    in_all = (waves - 1) * blocks.resident + last
    size = -(-gpu.sms // across(gpu.sms)) * across(gpu.sms)
    args = np.stack([np.arange(size), np.pad(in_all, (0, size - gpu.sms))], 1)
    return Annotation("sms", Captions((tr("SM {0} runs {1} blocks of the first launch."),), np.zeros(size, int), args))
