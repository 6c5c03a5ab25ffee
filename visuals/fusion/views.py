# fmt: off
"""What the stage shows of a chain's launches. A kernel is written from its blocks, and so is its view: which lines are steps, what is said.

Four threads are followed, one thread of a pool, one warp of a global pool. The others follow in one step of each launch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kernels.fusion import codegen
from kernels.fusion.common import Plan
from kernels.fusion.shape import TENSORS
from kernels.i18n import mark, tr, trn
from kernels.model import program as model
from visuals.scene.compiler.view import Buffer, Bytes, PerThread, Say, Shown, Step, View, step
from visuals.scene.parts import Group
from visuals.scene.requests import LANES
from visuals.scene.source import Mark

THREADS = 4  # that are followed
ROLES = {"x": "input", "y": "output"}  # by buffer of maps; others are workspace
ORDER = mark("launch after launch")
ORDER_NOTE = mark(
    "A kernel begins after the kernel before it has stored everything. Within a launch, the steps show the first threads. "
    "One last step shows all other threads. On a GPU the threads run in parallel, in an order that the scheduler chooses."
)
# What a pointwise block does, to a value v in the register r.
ACTION = {
    "bias": mark("The bias is added in registers."),
    "bn": mark("Batch norm is applied in registers, with gain = gamma / √(var + eps)."),
    "relu": mark("ReLU is applied in registers."),
    "add": mark("The second input, z, is added in registers."),
}
FORMULA = {
    "bias": "{r} + [b](filter) = {{{v}.before}} + {{{map_bias}}} = {{{v}}}",
    "bn": "({r} − mean) · gain + beta = ({{{v}.before}} − {{{map_mean}}}) · {{{map_gain}}} + {{{map_beta}}} = {{{v}}}",
    "relu": "max({r}, 0) = max({{{v}.before}}, 0) = {{{v}}}",
    "add": "{r} + [z](input) = {{{v}.before}} + {{{other}}} = {{{v}}}",
}


def role(buffer: str) -> str:
    return ROLES.get(buffer, "workspace")


def named(buffer: str) -> str:
    """Returns a buffer of maps in its colour."""
    return f"[{buffer}]({role(buffer)})"


def launches_of(plan: Plan) -> list[Launch]:
    """Returns the steps and registers of each launch of a plan."""
    shapes = {b.name: b.shape for b in plan.buffers}
    return [(Fold if part.launch.entry == "fold" else Blocks)(n, len(plan.parts), part.launch, shapes) for n, part in enumerate(plan.parts, 1)]


def view_of(launches: Sequence[Launch]) -> View:
    """Returns the view of a chain's launches."""
    buffers = launches[0].shapes
    written = [name for name in buffers if name == "y" or _title(name)[0] == "workspace"]
    tensors = (*(Buffer(name, *_title(name), plane=_plane(name, shape)) for name, shape in buffers.items()), *(t for of in launches for t in of.tensors))
    return View(
        tensors, (Group((tuple(shown.name for shown in tensors),)),), tuple(of.steps for of in launches),
        (Bytes(mark("bytes read from HBM, if each is read once"), " ".join(name for name in buffers if name != "y"), "ld", once=True),
         Bytes(mark("bytes written to HBM"), " ".join(written), "st")),
        group=THREADS, alone=THREADS, detailed=1, names={"t": "block * 1024 + thread"}, order=(ORDER, ORDER_NOTE),
    )


def _title(name: str) -> tuple[str, str]:
    kind = name.partition("_")[0]
    if "folded" in name:
        return "workspace", f"{kind}'"
    if kind == "z":
        return "input", name
    return ("filter" if kind in ("w", "b", "gamma", "beta", "mean", "var") else role(name)), name


def _plane(name: str, shape: Sequence[int]) -> str:
    return (mark("filter and map") if name.startswith("w") else mark("map")) if len(shape) == 4 else ""


class Launch:
    """The steps and registers of a launch. `other`: whether a thread is none of those that are followed."""

    other = f"min(t) >= {THREADS}"

    def __init__(self, n: int, total: int, launch: model.Launch, shapes: Mapping[str, tuple[int, ...]]):
        self.n, self.total, self.launch, self.shapes = n, total, launch, shapes
        self.buffers = [a for a in self.launch.args if isinstance(a, str)]
        self.steps: dict[str, Step] = {}
        self.tensors: list[Shown] = []
        self.options: dict[str, Any] = {}  # of each step
        self.write()

    def write(self) -> None:
        raise NotImplementedError

    def step(self, kind: str, at: Mark, *says: Say | str, **fields: Any) -> None:
        """Add a step. The first of a launch has the launch's name."""
        cases = [say if isinstance(say, Say) else Say(say) for say in says]
        if not self.steps:
            head = tr("Launch {n} of {total}: {name}.", n=self.n, total=self.total, name=self.launch.name)
            cases[0] = Say(f"{head} {cases[0].text}", cases[0].among)
        self.steps[f"{self.n} {kind}"] = step(at, Say(self.others(), self.other), *cases, **self.options | fields)

    def names(self, *names: str) -> tuple[str, ...]:
        return tuple(f"{self.n} {name}" for name in names)

    def others(self) -> str:
        raise NotImplementedError


class Fold(Launch):
    """Batch norm folded into a convolution: filter 0, then the others."""

    def others(self) -> str:
        return tr("Every other filter is multiplied by its own gain. Filter 1 is multiplied by {gain}. The batch norm is now part of [w'](workspace) and [b'](workspace).")

    def write(self) -> None:
        self.options, self.other = {"by": "k > 0"}, "min(k) > 0"
        w, b, gamma, beta, mean, var, b_folded, w_folded = self.buffers
        has_bias = b != w
        self.step("gain", "float gain =", tr("The fold runs once, before all images. For filter 0 gain = gamma / √(var + eps) = {gamma} / √({var}) = {gain}.", gamma=f"{{{gamma}}}", var=f"{{{var} + eps}}"))
        self.step("w", "w_folded[i] =", tr("Each weight of filter 0 becomes w · gain. The first is {w} · {gain} = {result}.", w=f"{{{w}}}", result=f"{{{w_folded}}}"))
        self.step("b", "b_folded[k] =", tr("The bias becomes (b − mean) · gain + beta = ({b} − {mean}) · {gain} + {beta} = {result}.", b=f"{{{b}}}" if has_bias else "0", mean=f"{{{mean}}}", beta=f"{{{beta}}}", result=f"{{{b_folded}.new}}"))


class Blocks(Launch):
    """Blocks of a chain that share a kernel, or one of them."""

    def write(self) -> None:
        source = self.launch.source
        self.group = codegen.parse_source(source) if source.startswith(codegen.PREFIXES) else codegen.Group(0, (self.launch.entry,))
        self.by_block = codegen.Names(self.group).by_block
        self.source, self.target = self.buffers[0], self.buffers[-1]
        self.plane = int(np.prod(self.shapes[self.source][2:]))
        self.size, self.pad, self.R = int(np.prod(self.shapes[self.target])), self._of_maps("pad"), self._of_maps("R")
        self.kinds = kinds = self.group.kinds
        value = f"{{{self.target}}}" if self.group.core else f"{{{self.source}[cell]}} → {{{self.target}}}"  # of one number: linked with it
        self.text = tr("{blocks} of {source}: {value}.", blocks=", ".join(kinds), source=named(self.source), value=value)
        if len(kinds) > 1:
            self.text += " " + tr("Between the blocks, the value stays in a register.")
        self.options = {"cells": {self.target: self.text}}
        core = self.product if self.group.is_product else self.conv
        {"": self.pointwise, "conv": core, "gap": self.gap}.get(self.group.core, self.pool)()

    def _of_maps(self, name: str) -> int:
        return int(next(a for a in self.launch.args if isinstance(a, np.void))[name])

    @property
    def v(self) -> str:
        """Returns the register v in its colour."""
        return f"[v]({role(self.target)})"

    def others(self) -> str:
        return tr("All other values of {target} are computed from {source} in the same way.", target=named(self.target), source=named(self.source))

    # -- by core ---------------------------------------------------------------------------------------
    def pointwise(self) -> None:
        columns = min(THREADS, self.size)
        self.registers(columns, "where(t == 0, level, -1)", "cell", tr("thread 0"))
        text = trn("Thread 0 loads {n} value of {source} from HBM into a register: {first}.", "Thread 0 loads {n} values of {source} from HBM into registers. The first is {first}.", columns, source=named(self.source), first="{v[0]}")
        self.step("load", "load(v, x", text)
        for n in self.of_kind("add", self.group.epilogue):
            self.step(f"load {n}", f"load({self.by_block[n]['other']}, ", tr("Thread 0 loads {n} values of the second input, too.", n=columns))
        self.epilogue("v[0]", "j == 0", columns)
        self.store("store(y, v")

    def conv(self) -> None:
        columns = min(THREADS, self.size)
        self.registers(columns, "level", "t", tr("threads 0 to {last}", last=columns - 1) if columns > 1 else "")
        text = tr("Each thread multiplies the values of {source} under its window by a filter of {w}. It adds the products. Thread 0 has {v} = {sum}.", source=named(self.source), w=self.weights(), v=self.v, sum="{v}")
        self.step("conv", "v += pixel[", text, merge=True)
        self.epilogue("v")
        self.store("y[i] = v")

    def product(self) -> None:
        columns, taps = min(THREADS, *self.shapes[self.target][2:][-1:], self.launch_tile("TN")), int(np.prod(self.shapes[self.buffers[1]][1:]))
        self.registers(columns, "where(t == 0, level, -1)", "cell", tr("thread 0, filter 0"), variable="sum[0]")
        text = tr(
            "The convolution is a matrix product. A row is a filter of {w}, {taps} weights. A column is a window of {source}. "
            "A block copies tiles of both to shared memory. Each window there is multiplied by many filters. Thread 0 has {v} = {sum}.",
            w=self.weights(), taps=taps, source=named(self.source), v=self.v, sum="{sum[0][0]}",
        )
        self.step("conv", "add_products(sum", text, together=True)
        first = "row == 0 and four == 0"
        for n in self.of_kind("add", self.group.epilogue):
            self.step(f"load {n}", f"load({self.by_block[n]['other']}, ", Say(tr("Thread 0 loads {n} values of the second input, too.", n=columns), first), "")
        self.epilogue("sum[0][0]", f"{first} and j == 0", columns, "row == 0")
        self.store("store(y, v", first)

    def launch_tile(self, name: str) -> int:
        return int(dict(self.launch.defines)[name])

    def pool(self) -> None:
        self.options, self.other = self.options | {"by": "t > 0"}, "min(t) > 0"
        _, _, H, W = self.shapes[self.source]
        rows, columns = (range(self.pad, min(self.R, self.pad + extent)) for extent in (H, W))
        taps = [(r, s) for r in rows for s in columns]
        first, last = (f"r == {r} and s == {s}" for r, s in (taps[0], taps[-1]))
        place = f"(r - {self.pad}) * {len(columns)} + s - {self.pad}"
        self.loaded(len(taps), "where(t == 0, level, -1)", place, tr("one column per value of the window"))
        self.registers(1, "where(t == 0, level, -1)", "0", tr("thread 0"))
        text = trn("Thread 0 loads the only value of {source} under its window: {first}.", "Thread 0 loads the {n} values of {source} under its window, one after the other. The first is {first}.", len(taps), source=named(self.source), first=f"{{{self.source}}}")
        kind, prologue = self.group.core, self.group.prologue
        core = trn("The only value becomes {v} = {value}.", "The {word} of the {n} values is {v} = {value}.", len(taps), v=self.v, value="{v}", word=tr("largest") if kind == "maxpool" else tr("sum"))
        if self.is_generated:
            self.fetch(prologue)
            self.step("load", "float u = x[in_index]", Say(text, first), "")
            self.apply(prologue, "u", first, 1)
            self.step("core", "v = larger(v, u)" if kind == "maxpool" else "v += u", Say(core, last), "", level=0)
        else:
            at = "v = larger(v, x[" if kind == "maxpool" else "v += x["
            one = [Say(f"{text} {core}", last)] if len(taps) == 1 else [Say(text, first), Say(core, last)]
            self.step("core", at, *one, "")
        if kind == "avgpool" and self.is_generated:
            self.step("mean", "v /= shape.R", tr("The sum is divided by R·R = {area}: {v} = {value}.", area=self.R**2, v=self.v, value="{v}"))
        self.epilogue("v")
        divided = tr("The sum is divided by R·R = {area}.", area=self.R**2)
        self.store("y[i] = v", lead=divided if kind == "avgpool" and not self.is_generated else "")

    def gap(self) -> None:
        self.options, self.other = self.options | {"by": f"t >= {LANES}"}, f"min(t) >= {LANES}"
        lanes, rows = min(LANES, self.plane), -(-self.plane // LANES)
        pixel = "(in_index - i * area)" if self.is_generated else "pixel"
        self.loaded(lanes, f"where(t < {LANES}, level * {rows} + {pixel} // {lanes}, -1)", f"{pixel} % {lanes}", tr("one column per lane"))
        self.tensors.append(PerThread(f"s{self.n}", role(self.target), tr("v: sums"), tr("one row after each exchange"), "s", of="v", during=self.names("core", "exchange"), place=("level * visit", "t"), part=(range(6), range(LANES))))
        text = trn("Warp 0 (32 threads, its lanes) loads map 0 of {source}, {n} value. Lane 0 loads {first}.", "Warp 0 (32 threads, its lanes) loads map 0 of {source}, {n} values. Lane 0 loads {first} first.", self.plane, source=named(self.source), first=f"{{{self.source}}}")
        added = tr("Each lane adds its values, every 32nd of the map. The sum of lane 0 is {v}.")
        prologue = self.group.prologue
        if self.is_generated:
            self.registers(1, "where(t == 0, level, -1)", "0", tr("lane 0"), ("mean",))
            self.fetch(prologue)
            self.step("load", "float u = x[in_index]", Say(text, "visit == 1"), "")
            self.apply(prologue, "u", "visit == 1", 1)
            self.step("core", "v += u", Say(added, "visit == visits"), "")
        else:
            one = [Say(f"{text} {added}", "visits == 1")] if rows == 1 else [Say(text, "visit == 1"), Say(added, "visit == visits")]
            self.step("core", "v += x[", *one, "")
        self.step("exchange", "__shfl_xor_sync", tr("Lanes exchange their sums in pairs, at distance {distance}. Lane 0 adds {a} + {b} = {v}. No memory is used.", distance="{lane_mask}", a="{v.before}", b="{received(v)}"), level=1)
        if self.is_generated:
            self.step("mean", "v /= area", tr("Lane 0 divides by H·W: {v} = {sum} / {area} = {value}.", v=self.v, sum="{v.before}", value="{v}"), level=0)
        self.epilogue("v")
        divided = tr("Lane 0 divides by H·W: {v} = {sum} / {area} = {value}.", v=self.v, sum="{v}", value="{v / area}")
        self.store("= v / area" if not self.is_generated else "y[i] = v", lead="" if self.is_generated else divided)

    @property
    def is_generated(self) -> bool:
        return len(self.group.kinds) > 1

    # -- parts of a kernel -----------------------------------------------------------------------------
    def of_kind(self, kind: str, blocks: Sequence[int]) -> Iterator[int]:
        return (n for n in blocks if self.group.kinds[n] == kind)

    def weights(self) -> str:
        """Returns its filters in their colour: folded ones are workspace."""
        name = self.buffers[1]
        return "[w'](workspace)" if name.startswith("w_folded") else f"[{name}](filter)"

    def registers(self, columns: int, row: str, column: str, note: str, first: tuple[str, ...] = ("load", "conv", "core", "mean"), variable: str = "v") -> None:
        """Add the register v: what is loaded or summed, then a row per block."""
        kinds = [self.group.kinds[n] for n in self.group.epilogue]
        title = f"v: {', '.join([self.group.core, *kinds] if self.group.core else kinds)}"
        during = self.names(*first, *(f"block {n}" for n in self.group.epilogue))
        self.tensors.append(PerThread(f"v{self.n}", role(self.target), title, note, "v", of=variable, during=during, place=(row, column), part=(range(1 + len(kinds)), range(columns))))

    def loaded(self, columns: int, row: str, column: str, note: str) -> None:
        """Add the registers u: what is loaded, and it after each block before the core."""
        before = [self.group.kinds[n] for n in self.group.prologue]
        loaded = tr("loaded")
        title = f"u: {', '.join((loaded, *before))}"
        during = self.names("load", *(f"block {n}" for n in self.group.prologue)) if self.is_generated else self.names("core")
        value = "u" if self.is_generated else self.source
        self.tensors.append(PerThread(f"u{self.n}", role(self.source), title, note, "u", value=value, place=(row, column), part=(None, range(columns)), during=during))

    def fetch(self, blocks: Sequence[int], among: str = "") -> None:
        """Add the loads of the numbers of a map, if blocks need some."""
        names = [self.by_block[n][local] for n in blocks for local in codegen.FETCH.get(self.group.kinds[n], {})]
        if names:
            said = tr("The numbers of the map are loaded: {names}.", names=", ".join(f"{name} = {{{name}}}" for name in names))
            says = (Say(said, among), "") if among else (said,)
            self.step(f"fetch {blocks[0]}", f"{names[0]} = ", *says, to=f"{names[-1]} = ")

    def apply(self, blocks: Sequence[int], v: str, among: str, level: int, more: str = "") -> None:
        """Add pointwise blocks, each a row of registers from `level` on. `more`: said with the last."""
        seen: dict[str, int] = {}
        for row, n in enumerate(blocks, level):
            kind, names = self.group.kinds[n], dict(self.by_block[n])
            at, nth = self.line_of(n, v, seen)
            other = f"{names['other']}[0]" if v not in ("u", "v") and kind == "add" else self.addend(n)
            formula = FORMULA[kind].format(**names | {"v": v, "r": "u" if v == "u" else "v", "other": other})
            text = f"{tr(ACTION[kind])} {self.v if v != 'u' else 'u'} = {formula}." + (f" {more}" if more and n == blocks[-1] else "")
            self.step(f"block {n}", (at, nth), *((Say(text, among), "") if among else (text,)), level=row)

    def addend(self, n: int) -> str:
        """Returns the buffer that an add block reads."""
        if self.group.kinds[n] != "add":
            return ""
        first = 1 + sum(len(TENSORS.get(kind, ())) for kind in self.group.kinds[:n])
        return self.buffers[first]

    def line_of(self, n: int, v: str, seen: dict[str, int]) -> tuple[str | re.Pattern, int]:
        """Returns the line of a pointwise block: two of ReLU have the same text."""
        variable = "v[j]" if v not in ("u", "v") else v
        kind, names = self.group.kinds[n], dict(self.by_block[n])
        if kind == "add":
            names["other"] = f"{names['z']}[" if v in ("u", "v") else f"{names['other']}[j]"
        text = codegen.APPLY[kind].format(v=variable, **names).rstrip(";")
        seen[text] = seen.get(text, -1) + 1
        return re.compile(rf"(?<![\w.]){re.escape(text)}"), seen[text]

    def epilogue(self, v: str, among: str = "", values: int = 1, fetched: str = "") -> None:
        """Add the blocks behind the core, or all of them: each is a row of v. `among` and `fetched`: which visits of them, and of the loads
        of their numbers, are said."""
        blocks = self.group.epilogue
        self.fetch(blocks, fetched or among)
        more = tr("The other values of the thread follow.") if values > 1 else ""
        self.apply(blocks, v, among, 1, more)

    def store(self, at: str, among: str = "", lead: str = "") -> None:
        """Add the store of the values. `lead`: said before."""
        text = tr("The values are stored to {target} in HBM. The first is {value}.", target=named(self.target), value=f"{{{self.target}}}")
        if len(self.group.kinds) > 1:
            text += " " + tr("Between the {n} blocks, all values stay in registers.", n=len(self.group.kinds))
        elif self.target != "y":
            text += " " + tr("The next launch loads {target} again.", target=named(self.target))
        self.step("store", at, *((Say(text, among), "") if among else (f"{lead} {text}".strip(),)))
