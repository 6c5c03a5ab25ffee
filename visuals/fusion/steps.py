"""The steps of a chain's launches: reads from HBM, the value in registers after each block, writes. The first
threads of a launch are followed, then all others at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernels.i18n import mark, tr, trn
from visuals.fusion.captions import ACTION, FORMULA, LOAD, MEAN, READ, SHUFFLE, STORE, Texts, numbers, pooled
from visuals.fusion.plan import Arrays, BlockLaunch, Member, RungRun, block_launch, is_fold
from visuals.scene.parts import Number
from visuals.scene.recorder import Recorder
from visuals.scene.requests import BITS, LANES

THREADS = 4  # number of threads that are followed: a thread of a pointwise kernel has as many values
# Captions of a store.
STORE_THREAD = mark("Thread 0 stores to {target} in HBM: {values}.")
STORE_EACH = mark("Each thread stores its value to {target} in HBM: {values}.")
STORE_LANE = mark("Lane 0 stores to {target} in HBM: {values}.")
ROLES = {"x": "input", "y": "output"}  # by buffer of maps; others are workspace


def role(buffer: str) -> str:
    return ROLES.get(buffer, "workspace")


def named(buffer: str) -> str:
    """Returns a buffer of maps in its colour."""
    return f"[{buffer}]({role(buffer)})"


@dataclass(frozen=True)
class Register:
    """The visible registers of a launch, as a tensor. `cells`: the computed values that are followed."""

    rows: int
    cols: int
    planes: int
    role: str
    title: str
    note: str = ""
    cells: np.ndarray | None = None


class FusionSteps:
    """All launches of a rung. `registers` collects the visible registers of each, by tensor."""

    def __init__(self, run: RungRun, texts: Texts):
        self.run, self.texts = run, texts
        self.templates: dict[str, tuple[int, str]] = {}  # the recorder's kinds of step, as they come
        self.r = Recorder(self.templates)
        self.source_lines: list[int] = []
        self.launch: list[int] = []  # of each step, from 1
        self.registers: dict[str, Register] = {}
        self.block_launches: dict[int, BlockLaunch] = {}
        self.cells_read: dict[str, np.ndarray] = {}
        for n, part in enumerate(run.parts, 1):
            self.n, self.file, self.first_step = n, part.launch.source, len(self.source_lines)
            self.cells_read = {}
            if is_fold(part):
                self.fold(part, run.arrays)
                continue
            self.block_launches[n] = w = block_launch(part, run.arrays)
            conv = self.product if w.group.is_product else self.conv
            {"": self.pointwise, "conv": conv, "gap": self.gap}.get(w.group.core, self.pool)(w)

    # -- one step ------------------------------------------------------------------------------------
    def step(self, line: int, template: str, *args: Number, mask: int = 1) -> None:
        """Add a step. The first of a launch has the launch's name."""
        if len(self.source_lines) == self.first_step:
            launch = self.run.parts[self.n - 1].launch
            head = tr("Launch {n} of {total}: {name}.", n=self.n, total=len(self.run.parts), name=launch.name)
            template = f"{head} {template}"
        self.templates.setdefault(template, (0, template))
        self.r.step(template, *map(float, args), warp=0 if mask else -1, mask=mask)
        self.source_lines.append(line)
        self.launch.append(self.n)

    def read(self, name: str, cells: np.ndarray) -> None:
        """Read cells in this step. Cells that the launch has not read before come from HBM."""
        cells = np.unique(np.ravel(cells))
        known = self.cells_read.setdefault(name, np.zeros(self.run.arrays[name].size, bool))
        self.r.count(read=4 * int((~known[cells]).sum()))
        known[cells] = True
        self.r.look(name, cells)

    def _add_unaccounted(self) -> None:
        """Add to the last step the launch's bytes that no step has counted."""
        part, first = self.run.parts[self.n - 1], self.first_step
        self.r.count(
            read=part.reads - self.r.total("read", first), written=part.writes - self.r.total("written", first)
        )

    def line(self, pattern: str) -> int:
        return self.texts.find_line(self.file, pattern)

    # -- the end of every launch -----------------------------------------------------------------------
    def add_epilogue(self, w: BlockLaunch, lines: list[int], cells: np.ndarray, v: str, row: int, mask: int) -> None:
        """Add the blocks behind the core, or all of them: each is a row of v."""
        for m, line in zip(w.epilogue, lines[len(w.members) - len(w.epilogue) :], strict=True):
            text = f"{tr(ACTION[m.kind])} [v]({role(w.target)}) = {FORMULA[m.kind]}."
            self.step(line, text, *numbers(m, cells[:1])[0], mask=mask)
            self.params(m, cells)
            width = self.registers[v].cols
            self.r.put(v, m.after.ravel()[cells], row * width + np.arange(len(cells)))
            row += 1

    def params(self, m: Member, cells: np.ndarray) -> None:
        for name in m.names:
            self.read(name, cells if m.kind == "add" else np.unique(m.of_map(cells)))

    def store(self, w: BlockLaunch, cells: np.ndarray, v: str, row: int, message: str, mask: int) -> None:
        """Write the last row of v, with the caption `message`, then the values of all other threads."""
        target, line = named(w.target), self.line(STORE)
        listed = ", ".join(f"{{{n}}}" for n in range(len(cells)))
        text = f"{tr(message, target=target, values=listed)} {self.hbm_note(w)}".strip()
        self.step(line, text, *w.result.ravel()[cells], mask=mask)
        width = self.registers[v].cols
        self.r.copy(w.target, v, row * width + np.arange(len(cells)), cells)
        self.r.count(written=4 * len(cells))
        others = np.setdiff1d(np.arange(w.result.size), cells)
        if others.size:
            text = trn(
                "The other value of {target} is computed from {source} in the same way.",
                "The other {n} values of {target} are computed from {source} in the same way.",
                others.size,
                target=target,
                source=named(w.source),
            )
            self.step(line, text, mask=2 ** min(LANES, w.result.size) - 1)
            self.r.look(w.source, np.arange(self.run.arrays[w.source].size))
            self.r.put(w.target, w.result.ravel()[others], others)
        self._add_unaccounted()

    def hbm_note(self, w: BlockLaunch) -> str:
        """Returns a sentence on which values between blocks went through HBM, or did not."""
        if len(w.members) > 1:
            return tr("Between the {n} blocks, all values stay in registers.", n=len(w.members))
        return tr("The next launch loads {target} again.", target=named(w.target)) if w.target != "y" else ""

    # -- by core ---------------------------------------------------------------------------------------
    def pointwise(self, w: BlockLaunch) -> None:
        cells = np.arange(min(THREADS, w.result.size))
        v, lines = f"v{self.n}", self.texts.blocks(self.run.parts[self.n - 1].launch, w.group.kinds)
        self.registers[v] = _values(w, cells, "v: " + _listed(w.epilogue), "")
        text = trn(
            "Thread 0 loads {n} value of {source} from HBM into a register: {0}.",
            "Thread 0 loads {n} values of {source} from HBM into registers. The first is {0}.",
            len(cells),
            source=named(w.source),
        )
        self.step(self.line(LOAD), text, w.members[0].before.ravel()[0])
        self.r.copy(v, w.source, cells)
        self.read(w.source, cells)
        self.add_epilogue(w, lines, cells, v, 1, 1)
        self.store(w, cells, v, len(w.epilogue), STORE_THREAD, 1)

    def conv(self, w: BlockLaunch) -> None:
        sums, taps = w.core.after.ravel(), int(w.core.params[0][0].size)
        cells = np.arange(min(THREADS, sums.size))
        v, mask = f"v{self.n}", 2 ** len(cells) - 1
        lines = self.texts.blocks(self.run.parts[self.n - 1].launch, w.group.kinds)
        self.registers[v] = _values(w, cells, "v: " + _listed(w.members), _threads(cells))
        window, in_colour = w.window(0), f"[v]({role(w.target)})"
        text = trn(
            "Thread 0 multiplies the only value of {source} under its window by filter 0 of {w}: {v} = {0}.",
            "Thread 0 multiplies the {n} values of {source} under its window by filter 0 of {w}. It adds the products: {v} = {0}.",
            len(window),
            source=named(w.source),
            w=_weights(w),
            v=in_colour,
        )
        self.step(lines[0], text, sums[0])
        self.read(w.source, window)
        self.read(w.core.names[0], np.arange(taps))
        self.r.put(v, sums[:1], cells[:1])
        if len(cells) > 1:
            text = trn(
                "At the same time, thread 1 computes the next output: {v} = {0}.",
                "At the same time, threads 1 to {n} compute the next outputs. Thread 1 has {v} = {0}.",
                len(cells) - 1,
                v=in_colour,
            )
            self.step(lines[0], text, sums[1], mask=mask)
            self.read(w.source, np.concatenate([w.window(i) for i in cells[1:].tolist()]))
            self.read(w.core.names[0], _filters(w, cells, taps))
            self.r.put(v, sums[cells[1:]], cells[1:])
        self.add_epilogue(w, lines, cells, v, 1, mask)
        self.store(w, cells, v, len(w.epilogue), STORE_EACH, mask)

    def product(self, w: BlockLaunch) -> None:
        """Add a convolution as a matrix product: the sums of thread 0 in its first row, at most four."""
        _, _, P, Q = w.core.after.shape
        sums, taps = w.core.after.ravel(), int(w.core.params[0][0].size)
        cells, v = np.arange(min(THREADS, P * Q)), f"v{self.n}"
        lines = self.texts.blocks(self.run.parts[self.n - 1].launch, w.group.kinds)
        self.registers[v] = _values(w, cells, "v: " + _listed(w.members), tr("thread 0, filter 0"))
        text = tr(
            "The convolution is a matrix product. A row is a filter of {w}, {taps} weights. A column is a window of {source}. "
            "A block copies tiles of both to shared memory. Each window there is multiplied by many filters.",
            w=_weights(w),
            taps=taps,
            source=named(w.source),
        )
        self.step(lines[0], text)
        self.read(w.source, np.concatenate([w.window(i) for i in cells.tolist()]))
        self.read(w.core.names[0], np.arange(taps))
        text = trn(
            "Thread 0 has the sum of filter 0 and the only window in a register: {v} = {0}.",
            "Thread 0 has the sums of filter 0 and {n} windows in registers. The first is {v} = {0}.",
            len(cells),
            v=f"[v]({role(w.target)})",
        )
        self.step(lines[0], text, sums[0])
        self.r.put(v, sums[cells], cells)
        self.add_epilogue(w, lines, cells, v, 1, 1)
        self.store(w, cells, v, len(w.epilogue), STORE_THREAD, 1)

    def pool(self, w: BlockLaunch) -> None:
        u, v, window = f"u{self.n}", f"v{self.n}", w.window(0)
        launch, cell = self.run.parts[self.n - 1].launch, np.zeros(1, int)
        lines = self.texts.blocks(launch, w.group.kinds)
        self.registers[u] = Register(
            1 + len(w.prologue), len(window), 1, role(w.source), _loaded(w), tr("one column per value of the window")
        )
        self.registers[v] = _values(w, cell, "v: " + _listed((w.core, *w.epilogue)), tr("thread 0"))
        read = self.line(READ) if w.prologue else lines[0]
        text = trn(
            "Thread 0 loads the only value of {source} under its window: {0}.",
            "Thread 0 loads the {n} values of {source} under its window, one after the other. The first is {0}.",
            len(window),
            source=named(w.source),
        )
        self.step(read, text, w.members[0].before.ravel()[window[0]])
        self.r.copy(u, w.source, window)
        self.read(w.source, window)
        self.add_prologue(w, lines, window, u)
        core, result = lines[len(w.prologue)], w.core.after.ravel()[0]
        text = pooled(w.group.core, len(window), int(w.maps["R"]) ** 2, f"[v]({role(w.target)})")
        self.step(core, text, result)
        self.r.put(v, np.array([result]), cell)
        self.add_epilogue(w, lines, cell, v, 1, 1)
        self.store(w, cell, v, len(w.epilogue), STORE_THREAD, 1)

    def add_prologue(self, w: BlockLaunch, lines: list[int], cells: np.ndarray, u: str) -> None:
        """Add the blocks in front of a pool, each a row (of a map, a plane) of u."""
        shape = self.registers[u]
        row = shape.cols * (shape.rows if shape.planes > 1 else 1)
        for n, (m, line) in enumerate(zip(w.prologue, lines, strict=False), 1):
            first = tr("The first value becomes {formula}.", formula=FORMULA[m.kind])
            text = f"{tr(ACTION[m.kind])} {first}"
            self.step(line, text, *numbers(m, cells[:1])[0])
            self.params(m, cells)
            self.r.put(u, m.after.ravel()[cells], n * row + np.arange(len(cells)))

    def gap(self, w: BlockLaunch) -> None:
        u, s, v = (f"{name}{self.n}" for name in "usv")
        area, cell = int(np.prod(w.core.before.shape[2:])), np.zeros(1, int)
        lines = self.texts.blocks(self.run.parts[self.n - 1].launch, w.group.kinds)
        lanes, rows, cells = min(LANES, area), -(-area // LANES), np.arange(area)
        planes = 1 + len(w.prologue)
        self.registers[u] = Register(rows, lanes, planes, role(w.source), _loaded(w), tr("one column per lane"))
        self.registers[s] = Register(
            1 + len(BITS), LANES, 1, role(w.target), tr("v: sums"), tr("one row after each exchange")
        )
        self.registers[v] = _values(w, cell, "v: " + _listed((w.core, *w.epilogue)), tr("lane 0"))
        mask = 2**lanes - 1
        read = self.line(READ) if w.prologue else lines[0]
        text = trn(
            "Warp 0 (32 threads, its lanes) loads map 0 of {source}, {n} value. Lane 0 loads {0}.",
            "Warp 0 (32 threads, its lanes) loads map 0 of {source}, {n} values. Lane 0 loads {0} first.",
            area,
            source=named(w.source),
        )
        self.step(read, text, w.members[0].before.ravel()[0], mask=mask)
        self.r.copy(u, w.source, cells)
        self.read(w.source, cells)
        self.add_prologue(w, lines, cells, u)
        sums = lane_sums(w.core.before.ravel()[:area])
        text = tr("Each lane adds its values, every 32nd of the map. The sum of lane 0 is {0}.")
        self.step(lines[len(w.prologue)], text, sums[0, 0], mask=mask)
        self.r.put(s, sums[0], np.arange(LANES))
        for n, bit in enumerate(BITS, 1):
            text = tr(
                "Lanes exchange their sums in pairs, at distance {0}. Lane 0 adds {1} + {2} = {3}. No memory is used."
            )
            self.step(self.line(SHUFFLE), text, bit, sums[n - 1, 0], sums[n - 1, bit], sums[n, 0], mask=2**LANES - 1)
            self.r.look(s, (n - 1) * LANES + np.arange(LANES))
            self.r.put(s, sums[n], n * LANES + np.arange(LANES))
        mean = w.core.after.ravel()[0]
        text = tr("Lane 0 divides by H·W: {v} = {0} / {1} = {2}.", v=f"[v]({role(w.target)})")
        self.step(self.line(MEAN), text, sums[-1, 0], area, mean)
        self.r.put(v, np.array([mean]), cell)
        self.add_epilogue(w, lines, cell, v, 1, 1)
        self.store(w, cell, v, len(w.epilogue), STORE_LANE, 1)

    def fold(self, part, arrays: Arrays) -> None:
        """Add filter 0 with its numbers, then the others."""
        f = folded(part, arrays)
        line, taps = self.line(r"w_folded\[i\] ="), f["w"].size // len(f["b'"])
        first, K = np.arange(taps), len(f["b'"])
        text = tr(
            "The fold runs once, before all images. gain = gamma / √(var + eps) = {0} / √({1}) = {2}. Each weight of filter 0 "
            "becomes w · gain. The first is {3} · {2} = {4}. The bias becomes (b − mean) · gain + beta = "
            "({5} − {6}) · {2} + {7} = {8}."
        )
        args = (
            f["gamma"][0],
            f["var"][0],
            f["gain"][0],
            f["w"].ravel()[0],
            f["w'"].ravel()[0],
            f["b"][0],
            f["mean"][0],
            f["beta"][0],
            f["b'"][0],
        )
        names = [a for a in part.launch.args if isinstance(a, str)]
        b_out, w_out = names[-2:]
        self.step(line, text, *args, mask=2 ** min(LANES, taps) - 1)
        for name in dict.fromkeys(names[1:-2]):
            if name != names[0]:
                self.read(name, np.zeros(1, int))
        self.read(names[0], first)
        self.r.put(w_out, f["w'"].ravel()[:taps], first)
        self.r.put(b_out, f["b'"][:1], np.zeros(1, int))
        self.r.count(written=4 * (taps + 1))
        if K > 1:
            text = tr(
                "Every other filter is multiplied by its own gain. Filter 1 is multiplied by {0}. The batch norm is now part of [w'](workspace) and [b'](workspace)."
            )
            self.step(line, text, f["gain"][1], mask=2**LANES - 1)
            self.r.put(w_out, f["w'"].ravel()[taps:], np.arange(taps, f["w"].size))
            self.r.put(b_out, f["b'"][1:], np.arange(1, K))
        self._add_unaccounted()


def folded(part, arrays: Arrays) -> Mapping[str, np.ndarray]:
    """Returns what a fold reads, its gain, and w' and b' from the kernel, by their names in the formula."""
    names = [a for a in part.launch.args if isinstance(a, str)]
    *_, bias, eps = part.launch.args
    w, b, gamma, beta, mean, var, b_out, w_out = (arrays[name] for name in names)
    gain = gamma / np.sqrt(var + eps)
    b = b if bias else np.zeros_like(beta)
    return {
        "w": w,
        "b": b,
        "gamma": gamma,
        "beta": beta,
        "mean": mean,
        "var": var,
        "gain": gain,
        "w'": w_out,
        "b'": b_out,
    }


def lane_sums(map_: np.ndarray) -> np.ndarray:
    """Returns float32 [6, 32]: a map's sums by lane as the warp computes them, each lane's own first, then after
    each exchange."""
    padded = np.concatenate([map_, np.zeros(-map_.size % LANES, np.float32)]).reshape(-1, LANES)
    sums = [np.zeros(LANES, np.float32)]
    for values in padded:
        sums[0] = sums[0] + values
    for bit in BITS:
        sums.append(sums[-1] + sums[-1][np.arange(LANES) ^ bit])
    return np.array(sums)


def _weights(w: BlockLaunch) -> str:
    """Returns its filters in their colour: folded ones are workspace."""
    name = w.core.names[0]
    return "[w'](workspace)" if name.startswith("w_folded") else f"[{name}](filter)"


def _filters(w: BlockLaunch, cells: np.ndarray, taps: int) -> np.ndarray:
    """Returns the weights of the filters that compute some outputs."""
    k = np.unique(w.core.of_map(cells))
    return (k[:, None] * taps + np.arange(taps)).ravel()


def _values(w: BlockLaunch, cells: np.ndarray, title: str, note: str) -> Register:
    """Returns the register v of the threads of some values: first what is read or summed, then a row per block."""
    return Register(1 + len(w.epilogue), len(cells), 1, role(w.target), title, note, cells)


def _threads(cells: np.ndarray) -> str:
    return tr("threads 0 to {last}", last=len(cells) - 1) if len(cells) > 1 else ""


def _loaded(w: BlockLaunch) -> str:
    """Returns the title of the registers u: what is loaded, and it after each block before the core."""
    parts = (tr("loaded"), *(m.kind for m in w.prologue))
    return f"u: {', '.join(parts)}"


def _listed(members) -> str:
    return ", ".join(m.kind for m in members)
