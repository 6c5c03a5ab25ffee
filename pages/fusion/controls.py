"""The controls of the fusion lesson: presets, size of the maps, chain of blocks, rung on the stage.

A block is a popover with its options and with links that move or remove it. Links and options set the URL and lead only
to legal chains. Another chain gets new option fields, so that no field sends an old value.
"""

from __future__ import annotations

import streamlit as st

from kernels.fusion import codegen
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import KINDS, MAX_BLOCKS, OPTIONS, ChainShape
from pages.fusion import address
from pages.fusion.address import ADDRESS, Edit
from pages.parts import rung_picker
from pages.parts.address import Fields
from pages.parts.controls import Link, limits, numbers, presets
from pages.parts.query import others
from pages.parts.rung_address import Selection
from pages.parts.text import quiet
from visuals.charts import units

CHIPS = {
    "fusion-toy": "Toy", "fusion-toy-pool": "Toy with a pool", "fusion-ragged": "ragged", "fusion-bias-bn-relu": "bias, BN, ReLU",
    "fusion-eight": "eight", "resnet50-res2-end-n64": "BN, add, ReLU", "resnet50-res2-3x3-bn-relu-n32": "ResNet-50 3×3",
    "resnet50-stem-n32": "its stem", "resnet50-end-n64": "its end", "vgg-conv2_2-pool-n8": "VGG-16 and pool",
    "densenet121-transition-n32": "DenseNet transition",
}  # fmt: skip
LINE = ((("N", "N", 66),), (("C", "C", 76),), (("H", "H", 70), ("W", "W", 70)))
NAMES = {
    "conv": "conv, a convolution of K filters R×R", "bias": "bias, a number added to each map", "bn": "bn, batch norm as at inference",
    "relu": "relu, max(v, 0)", "add": "add, maps of another branch", "maxpool": "maxpool, the largest of each window",
    "avgpool": "avgpool, the mean of each window", "gap": "gap, the mean of each map",
}  # fmt: skip
OPTION_PX = 130
# Session key of (number of chain changes, current shape). Option fields of earlier chains are ignored.
CHAIN_VERSION = "_fusion_turns"


def read(page: str, visible: bool) -> tuple[Selection, Link]:
    """Draws the controls and returns their query and a function that links to another preset.

    The link keeps all other settings. If not `visible`, only the URL is read."""
    if visible:
        _follow_options()
    controls = lambda fields, found, link: _controls(page, fields, found, link)  # noqa: E731
    return rung_picker.selection(page, ADDRESS, controls if visible else None)


def _controls(page: str, fields: Fields, query: Selection, link: Link) -> None:
    s, bounds = query.shape, address.bounds(query.shape)
    with st.container(key="chips", horizontal=True):
        presets(link, CHIPS, FUSION_PRESETS, s)
    with st.container(key="params", horizontal=True):
        numbers(fields, LINE, bounds)
        with st.container(key="chips_blocks", horizontal=True, width="content"):
            _Builder(page, fields, query).draw()
        st.html(f'<p class="kt-derived">{_derived(s)}</p>')
    limits(s.params(), bounds)


def _derived(s: ChainShape) -> str:
    """Returns, as HTML, derived sizes and the numbers of launches."""
    out = "×".join(f"{extent:,}" for extent in s.y_shape)
    fused = len(codegen.groups([b.kind for b in s.blocks]))
    return (
        f"output <b>{out}</b> · <b>{units.count(s.flops)}</b> FLOP · at least <b>{units.bytes_(s.bytes)}</b> moved · "
        f"<b>{len(s.blocks)}</b> launch{'es' * (len(s.blocks) > 1)}, fused <b>{fused}</b>"
    )


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
                    current,
                    address.with_option(current.shape, at, name, entered if name == "eps" else int(entered)),
                )
                return


def _set_chain(current: Selection, to: ChainShape) -> None:
    st.session_state[CHAIN_VERSION] = st.session_state[CHAIN_VERSION][0] + 1, to
    if chain := ADDRESS.at_shape(current, to).get("chain"):
        st.query_params["chain"] = chain
    else:
        st.query_params.pop("chain", None)


# -- the chain ---------------------------------------------------------------------------------------------
class _Builder:
    """Draws the line of blocks with which a chain is built."""

    def __init__(self, page: str, fields: Fields, query: Selection):
        self.page, self.fields, self.query, self.s = page, fields, query, query.shape

    def draw(self) -> None:
        for at, block in enumerate(self.s.blocks):
            with st.popover(str(block).replace(":", " "), key=f"block_{at}"):
                st.caption(f"Block {at + 1} of {len(self.s.blocks)}: {NAMES[block.kind]}.")
                self._options(at)
                with st.container(key=f"rungs_{at}", gap=None):
                    self._edit_links(at)
        with st.popover("+ block", key="block_more"), st.container(key="rungs_more", gap=None):
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
        bounds = {"min_value": float(bound.low), "max_value": float(bound.high)}
        st.number_input(
            name, **bounds, value=current, step=step, format=form, key=_key(at, name), width=OPTION_PX
        )
        if bound.why_high and bound.high == current:
            st.caption(f"{name} ≤ {bound.high} here: {bound.why_high}")

    def _edit_links(self, at: int) -> None:
        last = len(self.s.blocks) - 1
        if at > 0:
            self._link(address.moved(self.s, at, at - 1), "← one earlier")
        if at < last:
            self._link(address.moved(self.s, at, at + 1), "→ one later")
        if last:
            self._link(address.without(self.s, at), "× remove")
        else:
            quiet(f"It stays: a chain has 1 to {MAX_BLOCKS} blocks.")

    def _append(self) -> None:
        if len(self.s.blocks) == MAX_BLOCKS:
            quiet(f"A chain has 1 to {MAX_BLOCKS} blocks.")
            return
        found = address.appended(self.s)
        for kind in KINDS:
            self._link(found[kind], NAMES[kind])

    def _link(self, edit: Edit, label: str) -> None:
        """Draws a link to the edited chain, or the rule that forbids the edit."""
        if edit.shape is None:
            quiet(f"{label}: not here. {edit.rule}")
            return
        params = others(self.fields) | self._params(edit.shape)
        st.page_link(self.page, label=label, query_params=params)

    def _params(self, shape: ChainShape) -> dict[str, str]:
        return ADDRESS.at_shape(self.query, shape)
