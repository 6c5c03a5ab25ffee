"""The scene of a training step: the network's launches as boxes, its tensors between them, the memory of each launch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kernels import sources
from kernels.i18n import cached, tr, trn
from kernels.ladders import find
from kernels.training.accumulate import PART, of_first_part
from kernels.training.graph import ACTIVATION, DATA, FORWARD, GRADIENT, UPDATE, Node
from kernels.training.networks import IMAGE, NETWORKS
from kernels.training.recompute import AGAIN
from kernels.training.step import CHUNKS, GRADIENTS, PLAIN, WEIGHTS, Memory
from visuals import units
from visuals.scene.diagram import Area, Box, Diagram, Line
from visuals.scene.parts import Annotation, Captions, Group, Read, Source, Tensor, Write
from visuals.scene.scene import Scene
from visuals.scene.source import resources
from visuals.training.graph_words import PHASES
from visuals.training.plan import HUES, NAMES, ROLES, Plan, plan

# Rows of the diagram: the kernels of the forward pass, what they keep, its gradient, the kernels of the backward pass, those
# of the weights' gradients, the weights beside these gradients; and their heights.
AHEAD, KEPT, SLOPE, BACK, TO_WEIGHTS, PARAMETERS = range(6)
HEIGHTS = (1.0, 0.9, 0.9, 1.0, 0.74, 0.78)
KERNELS, TENSORS, LAYERS, SLOPES = "kernels", "tensors", "weights", "gradients"  # the tensors of the scene
WEIGHT_HUE = "filter"
FIRST_WIDER = 1.6  # times the width of the others: the box with the name of a layer


@dataclass
class Layout:
    """The places of a step's nodes and tensors: columns by layer, boxes so far, and the box of each cell."""

    plan: Plan
    times: Mapping[str, float]  # ms of each node that was timed
    here: bool  # whether on this processor
    held: Mapping[str, int]  # measured bytes of each node
    boxes: list[Box] = field(default_factory=list)
    place: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self):
        graph = self.plan.graph
        self.layers = list(dict.fromkeys([IMAGE, *(node.layer for node in graph.nodes)]))
        kinds = (DATA, ACTIVATION, GRADIENT)
        self.tensors = [
            t
            for t in graph.tensors.values()
            if t.kind in kinds and t.name != CHUNKS and not t.name.startswith(GRADIENTS)
        ]
        self.views = {view.name: view for view in graph.views}
        self.learning = list(dict.fromkeys(view.name.partition(".")[0] for view in graph.views if view.of == WEIGHTS))

    def column(self, layer: str) -> int:
        return self.layers.index(layer)

    def add(self, tensor: str, index: int, *place, **options) -> None:
        self.place[tensor, index] = len(self.boxes)
        self.boxes.append(Box(tensor, index, *place, **options))

    def cell(self, name: str) -> tuple[str, int] | None:
        """Returns the cell of a tensor of the graph, None for one that the picture leaves out."""
        if name in self.views:
            view = self.views[name]
            if view.of != WEIGHTS and not view.of.startswith(GRADIENTS):
                return self.cell(view.of)  # the images of a part
            whole = LAYERS if view.of == WEIGHTS else SLOPES
            return whole, self.learning.index(name.removeprefix("d ").partition(".")[0])
        return next(((TENSORS, n) for n, t in enumerate(self.tensors) if t.name == name), None)

    def cells(self, name: str) -> list[tuple[str, int]]:
        """Returns the cells of a tensor of the graph: all layers' for the buffer of all weights or gradients."""
        if name == WEIGHTS or name.startswith(GRADIENTS):
            whole = LAYERS if name == WEIGHTS else SLOPES
            return [(whole, n) for n in range(len(self.learning))]
        return [found] if (found := self.cell(name)) else []


def step_scene(
    network: str,
    batch: int,
    optimizer: str,
    times: Mapping[str, float] | None = None,
    memory: Memory = PLAIN,
    here: bool = False,
    held: Mapping[str, int] | None = None,
) -> Scene:
    """Returns the scene of a network's step. `times`: ms of each node that was timed, by its name; `held`: the bytes that
    were allocated while it ran. `here`: both on this processor and not on the recorded GPU.

    RuleError names a rule that a shape breaks.
    """
    return _scene(network, batch, optimizer, tuple((times or {}).items()), memory, here, tuple((held or {}).items()))


@cached(16)
def _scene(
    network: str,
    batch: int,
    optimizer: str,
    times: tuple[tuple[str, float], ...],
    memory: Memory,
    here: bool,
    held: tuple[tuple[str, int], ...],
) -> Scene:
    p = plan(network, batch, optimizer, memory)
    layout = Layout(p, dict(times), here, dict(held))
    _place_kernels(layout)
    _place_tensors(layout)
    _place_weights(layout)
    steps = len(p.parts)
    first, *rest = _sources(p)
    return Scene(
        key=f"{network} {batch} {optimizer} {memory.every} {memory.parts}",
        title=tr("A training step of {network}", network=tr(NETWORKS[network].title)),
        tensors=tuple(_tensors(layout)),
        groups=(Group(tuple((t.name,) for t in _tensors(layout))),),
        steps=steps,
        step_name=tr("launch"),
        order_name=tr("launch order"),
        order_note=tr("The GPU runs the launches of a stream in this order, one after the other."),
        writes=(
            Write(
                KERNELS,
                np.arange(steps),
                np.arange(1, steps + 1, dtype=np.float32),
                cells=np.array([part.node for part in p.parts]),
            ),
        ),
        reads=tuple(_reads(layout)),
        captions=_captions(p),
        annotations=tuple(_annotations(layout)),
        source=first,
        next_sources=tuple(rest),
        diagram=_diagram(layout),
    )


def _tensors(layout: Layout) -> Iterator[Tensor]:
    nodes, learning = layout.plan.graph.nodes, layout.learning
    yield Tensor(KERNELS, "k", tr("kernels"), "output", 1, 1, len(nodes))
    nbytes = np.array([t.nbytes for t in layout.tensors], np.float32)
    yield Tensor(TENSORS, "t", tr("activations and gradients"), "input", 1, 1, len(nbytes), nbytes)
    weights = np.array([sum(_sizes(layout, name)) for name in learning], np.float32)
    yield Tensor(LAYERS, "w", tr("weights"), WEIGHT_HUE, 1, 1, len(learning), weights)
    yield Tensor(SLOPES, "g", tr("gradients of the weights"), "output", 1, 1, len(learning), weights)


def _sizes(layout: Layout, layer: str) -> list[int]:
    """Returns the bytes of each weight of a layer."""
    return [
        4 * math.prod(v.shape) for v in layout.views.values() if v.of == WEIGHTS and v.name.partition(".")[0] == layer
    ]


# -- places ------------------------------------------------------------------------------------------
def _place_kernels(layout: Layout) -> None:
    """Adds a box for each node: forward above with what is computed again, the way back below, what computes gradients of
    weights under it. Nodes that share a place lie side by side."""
    graph = layout.plan.graph
    places: dict[tuple[int, int], list[int]] = {}
    for n, node in enumerate(graph.nodes):
        places.setdefault((layout.column(node.layer), _row(node)), []).append(n)
    for (column, row), members in places.items():
        ends = np.cumsum([FIRST_WIDER if k == 0 and row == AHEAD else 1.0 for k in range(len(members))])
        for k, n in enumerate(members):
            place = ends[k - 1] / ends[-1] if k else 0.0, min(1.0, ends[k] / ends[-1])
            label = _label(layout, graph.nodes[n], first=k == 0 and row == AHEAD)
            layout.add(KERNELS, n, column, row, "output", *_lit(layout, n, label, *map(float, place)))


def _row(node: Node) -> int:
    if node.phase == FORWARD or _plain_name(node).endswith(AGAIN):
        return AHEAD
    return BACK if node.phase == UPDATE or _plain_name(node).endswith("dx") else TO_WEIGHTS


def _plain_name(node: Node) -> str:
    """Returns the name of a node without the part of the images."""
    return node.name.partition(PART)[0]


def _label(layout: Layout, node: Node, first: bool) -> str:
    """Returns the short text of a node: the layer's name or "dx", the number of its part, a sign if it computes again or
    adds."""
    group, _, rest = node.layer.partition(" ")
    name, _, part = node.name.partition(PART)
    if name.endswith(AGAIN):
        return "↻"
    if part and not first:
        return part
    if node.phase == UPDATE:
        return node.rung.partition("/")[0]
    own = name.removeprefix(node.layer).strip()
    if own or node.phase != FORWARD:
        return "+" if own.startswith("sum of") else own
    grouped = sum(layer.partition(" ")[0] == group for layer in layout.layers) > 1
    return rest or (node.rung.partition("/")[0] if grouped else node.layer)


def _lit(layout: Layout, n: int, label: str, left: float, right: float) -> tuple:
    steps = [k for k, part in enumerate(layout.plan.parts) if part.node == n]
    name = layout.plan.graph.nodes[n].name
    time = [units.time_(layout.times[name])] if name in layout.times else []
    return (label, *time), steps[0], steps[-1], True, left, right


def _place_tensors(layout: Layout) -> None:
    """Adds a box for each activation and gradient, in the column of the layer that it is the result of."""
    by_place: dict[tuple[int, int], list[int]] = {}
    for n, t in enumerate(layout.tensors):
        row = SLOPE if t.kind == GRADIENT else KEPT
        by_place.setdefault((_column(layout, t.name), row), []).append(n)
    for (column, row), members in by_place.items():
        sizes = [layout.tensors[n].nbytes ** 0.25 for n in members]  # so that a small one can be seen
        ends = np.cumsum(sizes) / sum(sizes)
        for n, left, right in zip(members, (0.0, *ends[:-1]), ends, strict=True):
            t = layout.tensors[n]
            hue = HUES.get(t.kind, "input")
            lines = (units.bytes_(t.nbytes), _extents(t.shape))
            life, left, right = _life(layout, t.name), float(left), float(min(1, right))
            layout.add(TENSORS, n, column, row, hue, lines, *life, left=left, right=right)


def _column(layout: Layout, name: str) -> int:
    """Returns the column of a tensor: a gradient has that of the tensor whose gradient it is."""
    if name.startswith("d "):
        return _column(layout, re.sub(r" \d+$", "", of_first_part(name).removeprefix("d ")))
    t = layout.plan.graph.tensors[name]
    return layout.column(t.layer) if t.layer in layout.layers else 0


def _extents(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def _life(layout: Layout, name: str) -> tuple[int, int]:
    """Returns the first and the last launch that uses a tensor; an input exists from the start."""
    p = layout.plan
    if p.graph.tensors[name].kind == DATA:
        return 0, max(n for n in range(len(p.parts)) if p.node(n).phase != UPDATE)
    used = [n for n, part in enumerate(p.parts) if name in p.graph.nodes[part.node].tensors.values()]
    kept = [n for n in used if any(isinstance(a, str) and a == name for a in p.parts[n].launch.args)] or used
    return kept[0], kept[-1]


def _place_weights(layout: Layout) -> None:
    """Adds the weights of each layer and their gradients, which exist until the update."""
    p = layout.plan
    last = len(p.parts) - 1
    for n, layer in enumerate(layout.learning):
        text = units.bytes_(sum(_sizes(layout, layer)))
        column = layout.column(layer)
        layout.add(LAYERS, n, column, PARAMETERS, WEIGHT_HUE, (text,), 0, last, right=0.5)
        first = min(
            k
            for k, part in enumerate(p.parts)
            if any(
                a in layout.views
                and layout.views[a].of.startswith(GRADIENTS)
                and a.removeprefix("d ").partition(".")[0] == layer
                for a in p.graph.nodes[part.node].tensors.values()
            )
        )
        layout.add(SLOPES, n, column, PARAMETERS, "output", (tr("gradient"),), first, last, left=0.5, right=1.0)


# -- what each step reads, and the texts -----------------------------------------------------------------
def _used(layout: Layout, node: Node, wrote: bool) -> list[tuple[str, int]]:
    """Returns the cells that a node writes, or those that it only reads."""
    names = written(node)
    return [
        cell for buffer, tensor in node.tensors.items() if (buffer in names) == wrote for cell in layout.cells(tensor)
    ]


@cached(512)
def _outputs(rung: str, shape) -> frozenset[str]:
    built = find(rung).build(shape, find(rung).default_tiles)
    return frozenset(b.name for b in built.outputs)


def written(node: Node) -> frozenset[str]:
    """Returns the buffers of a node's program that it writes."""
    return _outputs(node.rung, node.shape)


def _reads(layout: Layout) -> Iterator[Read]:
    p = layout.plan
    for tensor in (TENSORS, LAYERS, SLOPES):
        cells = [
            [i for name, i in _used(layout, p.node(n), wrote=False) if name == tensor] for n in range(len(p.parts))
        ]
        start = np.concatenate([[0], np.cumsum([len(each) for each in cells])])
        yield Read(tensor, start, np.array([i for row in cells for i in row], int))


def _captions(p: Plan) -> Captions:
    templates = tuple(_caption(p, n) for n in range(len(p.parts)))
    return Captions(templates, np.arange(len(templates)), np.zeros((len(templates), 1), int))


def _caption(p: Plan, n: int) -> str:
    part, node = p.parts[n], p.node(n)
    kernel = part.launch.entry
    fields = {
        "kernel": kernel,
        "node": node.name,
        "reads": _named(p, node, wrote=False),
        "writes": _named(p, node, wrote=True),
        "held": units.bytes_(int(p.total[n])),
    }
    nth = tr(" (launch {n} of {of})", n=part.nth + 1, of=part.of) if part.of > 1 else ""
    if node.phase == UPDATE:
        return tr(
            "{kernel} updates all [weights](filter) in one launch, from their [gradients](output). {held} are allocated.",
            **fields,
        )
    return tr(
        "{node}: kernel {kernel}{nth} reads {reads} and writes {writes}. {held} are allocated.", nth=nth, **fields
    )


def _named(p: Plan, node: Node, wrote: bool) -> str:
    """Returns the tensors that a node reads or writes, each in the colour of its role."""
    names = written(node)
    views = {view.name: view for view in p.graph.views}
    texts = []
    for buffer, tensor in node.tensors.items():
        if (buffer in names) != wrote:
            continue
        hue = (
            WEIGHT_HUE
            if tensor in views and views[tensor].of == WEIGHTS
            else "output"
            if tensor.startswith("d ")
            else "input"
        )
        texts.append(f"[{_plain(tensor)}]({hue})")
    return tr("{first} and {last}", first=", ".join(texts[:-1]), last=texts[-1]) if len(texts) > 1 else texts[0]


def _plain(tensor: str) -> str:
    """Returns the name of a tensor without brackets and braces, which captions could not hold."""
    return re.sub(r"[\[\]{}()]", "", tensor)


def _annotations(layout: Layout) -> Iterator[Annotation]:
    p = layout.plan
    nodes = p.graph.nodes
    texts = [_about_node(layout, n) for n in range(len(nodes))]
    yield Annotation(KERNELS, _texts(texts), _links([_used(layout, node, wrote=False) for node in nodes]))
    yield Annotation(TENSORS, _texts([_about_tensor(layout, n) for n in range(len(layout.tensors))]))
    yield Annotation(LAYERS, _texts([_about_weights(layout, layer) for layer in layout.learning]))
    gradient = [
        tr(
            "The [gradient](output) of the weights of {layer}: {bytes}. It exists from the launch that writes it to the update.",
            layer=layer,
            bytes=units.bytes_(sum(_sizes(layout, layer))),
        )
        for layer in layout.learning
    ]
    yield Annotation(SLOPES, _texts(gradient))


def _texts(texts: list[str]) -> Captions:
    return Captions(tuple(texts), np.arange(len(texts)), np.zeros((len(texts), 1), int))


def _links(cells: list[list[tuple[str, int]]]) -> dict[str, np.ndarray]:
    """Returns the linked cells of each tensor: integer [rows, n], -1 where a row has fewer."""
    found = {}
    for tensor in (TENSORS, LAYERS, SLOPES):
        rows = [[i for name, i in row if name == tensor] for row in cells]
        widest = max(map(len, rows))
        if widest:
            found[tensor] = np.array([row + [-1] * (widest - len(row)) for row in rows], int)
    return found


def _about_node(layout: Layout, n: int) -> str:
    p, node = layout.plan, layout.plan.graph.nodes[n]
    steps = [k for k, part in enumerate(p.parts) if part.node == n]
    rung = find(node.rung)
    kernels = ", ".join(dict.fromkeys(p.parts[k].launch.entry for k in steps))
    text = trn(
        "{node}: {title}. {n} launch: {kernels}.",
        "{node}: {title}. {n} launches: {kernels}.",
        len(steps),
        node=node.name,
        title=tr(rung.title),
        kernels=kernels,
    )
    if node.name in layout.times:
        time = units.time_(layout.times[node.name])
        text += " " + (
            tr("It takes {time} on this processor.", time=time)
            if layout.here
            else tr("It takes {time}, recorded.", time=time)
        )
    return _safe(text)


def _about_tensor(layout: Layout, n: int) -> str:
    t, p = layout.tensors[n], layout.plan
    first, last = _life(layout, t.name)
    fields = {"name": t.name, "shape": _extents(t.shape), "bytes": units.bytes_(t.nbytes)}
    if t.kind == DATA:
        return _safe(tr("{name}, [{shape}]: {bytes} of images or labels. It stays in memory.", **fields))
    return _safe(
        tr(
            "{name}, [{shape}]: {bytes}. It exists from launch {first} to launch {last} of {all}.",
            first=first + 1,
            last=last + 1,
            all=len(p.parts),
            **fields,
        )
    )


def _about_weights(layout: Layout, layer: str) -> str:
    shapes = ", ".join(
        f"{v.name.partition('.')[2]} {_extents(v.shape)}"
        for v in layout.views.values()
        if v.of == WEIGHTS and v.name.partition(".")[0] == layer
    )
    return _safe(
        tr(
            "The [weights](filter) of {layer}: {shapes}, {bytes}. They stay in memory.",
            layer=layer,
            shapes=shapes,
            bytes=units.bytes_(sum(_sizes(layout, layer))),
        )
    )


def _safe(text: str) -> str:
    return text.replace("{", "(").replace("}", ")")


# -- kernels -----------------------------------------------------------------------------------------
def _sources(p: Plan) -> Iterator[Source]:
    """Yields the function of each launch's kernel; its first line is lit."""
    for n, part in enumerate(p.parts):
        launch = part.launch
        text, first = function_text(launch.source, launch.entry)
        yield Source(launch.source.rpartition("/")[2], text, np.array([first]), first, {}, resources(launch), n)


def function_text(path: str, entry: str) -> tuple[str, int]:
    """Returns the text of a kernel in its file, from its first line to its closing brace, and the number of that line."""
    lines = sources.text(path).splitlines()
    start = next(
        n
        for n, line in enumerate(lines)
        if re.search(rf"\b{re.escape(entry)}\s*\(", line) and "__global__" in "".join(lines[max(0, n - 2) : n + 1])
    )
    while start and "__global__" not in lines[start]:
        start -= 1
    depth, opened, end = 0, False, start
    for end in range(start, len(lines)):
        depth += lines[end].count("{") - lines[end].count("}")
        opened = opened or "{" in lines[end]
        if opened and depth <= 0:
            break
    return "\n".join(lines[start : end + 1]), start + 1


# -- the diagram -------------------------------------------------------------------------------------
def _diagram(layout: Layout) -> Diagram:
    p = layout.plan
    peak = units.bytes_(int(p.total.max()))
    phases = [p.node(n).phase for n in range(len(p.parts))]
    begins = [n for n, phase in enumerate(phases) if not n or phase != phases[n - 1]]
    return Diagram(
        boxes=tuple(layout.boxes),
        heights=HEIGHTS,
        arrows=tuple(_arrows(layout)),
        groups=tuple(_groups(layout)),
        areas=tuple(
            Area(tr(NAMES[role]), HUES[role], p.memory[:, k].astype(float), role in ("state", "data"))
            for k, role in enumerate(ROLES)
        ),
        title=tr("Memory during each launch:"),
        line=_measured(layout),
        totals=tuple(_total(layout, n, peak) for n in range(len(p.parts))),
        phases=tuple((tr(PHASES[phases[n]]), n) for n in begins),
    )


def _measured(layout: Layout) -> Line | None:
    """Returns the measured bytes of each launch's node as a line, or None."""
    if not layout.held:
        return None
    name = tr("measured on this processor") if layout.here else tr("recorded")
    p = layout.plan
    return Line(name, np.array([layout.held[p.node(n).name] for n in range(len(p.parts))], float))


def _total(layout: Layout, n: int, peak: str) -> str:
    """Returns the predicted bytes during a launch beside the peak, and the measured ones."""
    now = units.bytes_(int(layout.plan.total[n]))
    if not layout.held:
        return tr("{now} of {peak} at the peak", now=now, peak=peak)
    measured = units.bytes_(layout.held[layout.plan.node(n).name])
    return tr("{now} of {peak} at the peak, {measured} measured", now=now, peak=peak, measured=measured)


def _arrows(layout: Layout) -> Iterator[tuple[int, int]]:
    """Yields lines from each tensor to the kernels that continue with it, and from a kernel to its result."""
    place, graph = layout.place, layout.plan.graph
    for n, node in enumerate(graph.nodes):
        if node.phase == UPDATE:
            continue
        kernel = place[KERNELS, n]
        for cell in _used(layout, node, wrote=True):
            if _is_near(layout, kernel, place[cell]):
                yield kernel, place[cell]
        for cell in _used(layout, node, wrote=False):
            if (
                cell[0] == TENSORS
                and _is_near(layout, kernel, place[cell])
                and _same_direction(node, layout.tensors[cell[1]].kind)
            ):
                yield place[cell], kernel


def _is_near(layout: Layout, a: int, b: int) -> bool:
    one, two = layout.boxes[a], layout.boxes[b]
    return abs(one.column - two.column) <= 1 or {one.row, two.row} <= {AHEAD, KEPT}


def _same_direction(node: Node, kind: str) -> bool:
    return (node.phase == FORWARD) == (kind != GRADIENT)


def _groups(layout: Layout) -> Iterator[tuple[str, int, int]]:
    """Yields the groups of columns whose layers begin with the same word. If the images come in parts, there is no room for
    names in the boxes: then each column is a group."""
    if any(PART in node.name for node in layout.plan.graph.nodes):
        yield from ((layer, n, n) for n, layer in enumerate(layout.layers) if n)
        return
    first = 0
    words = [layer.partition(" ")[0] for layer in layout.layers]
    for n in range(1, len(words) + 1):
        if n == len(words) or words[n] != words[first]:
            if n - first > 1:
                yield words[first], first, n - 1
            first = n
