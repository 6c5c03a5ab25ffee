"""The controls of the fusion lesson: presets, size of the maps, chain of blocks, rung on the stage.

A block is a popover with its options and with links that move or remove it. Links and options set the URL and lead only
to legal chains. Another chain gets new option fields, so that no field sends an old value.
"""

from __future__ import annotations

import streamlit as st

from kernels.fusion import codegen
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import KINDS, MAX_BLOCKS, OPTIONS, ChainShape
from kernels.i18n import decimal, mark, tr, trn
from pages.fusion import address
from pages.fusion.address import ADDRESS, Edit
from pages.parts import rung_picker
from pages.parts.address import Fields
from pages.parts.controls import Link, derived, limits, numbers, presets
from pages.parts.links import drawn
from pages.parts.query import explored, others, write
from pages.parts.rung_address import Selection
from pages.parts.sizes import Sizes
from pages.parts.text import quiet
from visuals import units

PAGE = "fusion/page.py"
CHIPS = {
    "fusion-toy": mark("Toy"),
    "fusion-toy-pool": mark("Toy with a pool"),
    "fusion-ragged": mark("odd sizes"),
    "fusion-bias-bn-relu": mark("bias, BN, ReLU"),
    "fusion-eight": mark("eight blocks"),
    "resnet50-res2-end-n64": mark("BN, add, ReLU"),
    "resnet50-res2-3x3-bn-relu-n32": "ResNet-50 3×3",
    "resnet50-stem-n32": mark("ResNet-50 stem"),
    "resnet50-end-n64": mark("ResNet-50 end"),
    "vgg-conv2_2-pool-n8": mark("VGG-16 and pool"),
    "densenet121-transition-n32": mark("DenseNet transition"),
}
LINE = ((("N", "N", 66),), (("C", "C", 76),), (("H", "H", 70), ("W", "W", 70)))
NAMES = {
    "conv": mark("conv, a convolution with K filters of R×R"),
    "bias": mark("bias, one number added to each map"),
    "bn": mark("bn, batch norm at inference"),
    "relu": mark("relu, max(v, 0)"),
    "add": mark("add, the maps of a second branch"),
    "maxpool": mark("maxpool, the largest value of each window"),
    "avgpool": mark("avgpool, the mean of each window"),
    "gap": mark("gap, the mean of each map"),
}
OPTION_PX = 130
# Session key of (number of chain changes, current shape). Option fields of earlier chains are ignored.
CHAIN_VERSION = "_fusion_versions"


def sizes(query: Selection) -> Sizes:
    """Returns how the strip names a shape, and the preset of the same blocks on the largest maps."""
    return Sizes(name, real, ADDRESS.chosen_tiles(query))


def name(s: ChainShape) -> str:
    """Returns the maps in a few words: "32 images, 64 maps of 56×56"."""
    images = trn("{n} image", "{n} images", s.N)
    maps = trn("{n} map of {size}", "{n} maps of {size}", s.C, size=f"{s.H}×{s.W}")
    return f"{images}, {maps}"


def real(s: ChainShape) -> ChainShape | None:
    """Returns the preset with the same kinds of blocks and most work; None if no preset has them."""
    kinds = [block.kind for block in s.blocks]
    same = [p.shape for p in FUSION_PRESETS.values() if [block.kind for block in p.shape.blocks] == kinds]
    return max(same, key=lambda shape: shape.flops, default=None)


def read(visible: bool) -> tuple[Selection, Link]:
    """Draws the controls, or only reads the URL; returns what they select, and the links to presets."""
    if visible:
        _follow_options()
    return rung_picker.selection(PAGE, ADDRESS, _controls if visible else None)


def _controls(fields: Fields, query: Selection, link: Link) -> None:
    s, bounds = query.shape, address.bounds(query.shape)
    with st.container(key="chips", horizontal=True):
        presets(link, CHIPS, FUSION_PRESETS, ADDRESS.lit_shape(query))
    with st.container(key="params", horizontal=True):
        numbers(fields, LINE, bounds)
        with st.container(key="chips_blocks", horizontal=True, width="content"):
            _Builder(fields, query).draw()
        derived(_derived(s))
    limits(s.params(), bounds)


def _derived(s: ChainShape) -> str:
    """Returns, as HTML, derived sizes and the numbers of launches."""
    out = "×".join(decimal(f"{extent:,}") for extent in s.y_shape)
    fused = len(codegen.groups([b.kind for b in s.blocks]))
    launches = trn(
        "<b>{n}</b> launch, <b>{fused}</b> if fused",
        "<b>{n}</b> launches, <b>{fused}</b> if fused",
        len(s.blocks),
        fused=fused,
    )
    sizes = tr(
        "output <b>{out}</b> · <b>{flop}</b> FLOP · at least <b>{bytes}</b> moved",
        out=out,
        flop=units.count(s.flops),
        bytes=units.bytes_(s.bytes),
    )
    return f"{sizes} · {launches}"


def _key(at: int, name: str) -> str:
    return f"option {at} {name} {st.session_state[CHAIN_VERSION][0]}"


def _follow_options() -> None:
    """Writes the chain to the URL if an option field differs from it.

    The fields are compared in each rerun. Streamlit's change callback is not used: it fires again when an old state
    arrives late. Only the chain is written, because the other URL parameters are bound to their own controls."""
    current = ADDRESS.read(st.query_params)[0]
    count, last_shape = st.session_state.get(CHAIN_VERSION, (0, current.shape))
    st.session_state[CHAIN_VERSION] = count + (last_shape != current.shape), current.shape
    for at, block in enumerate(current.shape.blocks):
        for name in OPTIONS[block.kind]:
            entered = st.session_state.get(_key(at, name))
            if entered is not None and entered != getattr(block, name):
                _set_chain(
                    current, address.with_option(current.shape, at, name, entered if name == "eps" else int(entered))
                )
                return


def _set_chain(current: Selection, to: ChainShape) -> None:
    st.session_state[CHAIN_VERSION] = st.session_state[CHAIN_VERSION][0] + 1, to
    write("chain", ADDRESS.at_shape(current, to).get("chain", ""))


# -- the chain ---------------------------------------------------------------------------------------------
class _Builder:
    """Draws the line of blocks with which a chain is built."""

    def __init__(self, fields: Fields, query: Selection):
        self.fields, self.query, self.s = fields, query, query.shape

    def draw(self) -> None:
        for at, block in enumerate(self.s.blocks):
            with st.popover(str(block).replace(":", " "), key=f"block_{at}"):
                name = tr(NAMES[block.kind])
                st.caption(tr("Block {n} of {total}: {name}.", n=at + 1, total=len(self.s.blocks), name=name))
                self._options(at)
                with st.container(key=f"rungs_{at}", gap=None):
                    self._edit_links(at)
        with st.popover(tr("+ block"), key="block_more"), st.container(key="rungs_more", gap=None):
            self._append()

    def _options(self, at: int) -> None:
        kind = self.s.blocks[at].kind
        if not OPTIONS[kind]:
            return
        with st.container(key=f"params_block_{at}"):
            for name, bound in address.option_bounds(self.s, at).items():
                self._field(at, name, bound, "%.0f", 1.0)
            if "eps" in OPTIONS[kind]:
                self._field(at, "eps", address.EPS, "%g", 1e-5)

    def _field(self, at: int, name: str, bound, form: str, step: float) -> None:
        current = float(getattr(self.s.blocks[at], name))
        st.number_input(
            name,
            min_value=float(bound.low),
            max_value=float(bound.high),
            value=current,
            step=step,
            format=form,
            key=_key(at, name),
            width=OPTION_PX,
        )
        if bound.why_high and bound.high == current:
            high = decimal(f"{bound.high:,}")
            st.caption(tr("{name} ≤ {high} here: {why}", name=name, high=high, why=bound.why_high))

    def _edit_links(self, at: int) -> None:
        last = len(self.s.blocks) - 1
        if at > 0:
            self._link(address.moved(self.s, at, at - 1), tr("← move earlier"))
        if at < last:
            self._link(address.moved(self.s, at, at + 1), tr("→ move later"))
        if last:
            self._link(address.without(self.s, at), tr("× remove"))
        else:
            quiet(tr("The only block cannot be removed: a chain has 1 to {max} blocks.", max=MAX_BLOCKS))

    def _append(self) -> None:
        if len(self.s.blocks) == MAX_BLOCKS:
            quiet(tr("A chain has 1 to {max} blocks.", max=MAX_BLOCKS))
            return
        found = address.appended(self.s)
        for kind in KINDS:
            self._link(found[kind], tr(NAMES[kind]))

    def _link(self, edit: Edit, label: str) -> None:
        """Draws a link to the edited chain, or the rule that forbids the edit."""
        if edit.shape is None:
            quiet(tr("{label}: not possible here. {rule}", label=label, rule=edit.rule))
            return
        to = others(self.fields) | ADDRESS.at_shape(self.query, edit.shape)
        st.page_link(PAGE, label=label, query_params=drawn(explored(to), self.fields.by_name))
