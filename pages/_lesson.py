"""The parts all lessons share: heading, shape, picture and filter.

The address is the document: every control is bound to a parameter of it, defaults are left out, and
each run reads it anew. Streamlit 1.67 makes five things worth knowing:

* A bound field of integers crashes on ?H=inf; one of floats drops it. So the fields hold floats.
* A bound value equal to its default leaves the address. The default therefore never depends on the
  other controls; where it is out of bounds the field has none.
* A control in a closed popover is told nothing, and later sends the value it had before Back or a
  link changed it. So the address is believed, not the control.
* A link to the page one is on reruns it but leaves the browser's address as it was: `_asked` mends it.
* The server learns of ?step=, which the stage writes, only when a bound control is turned. Writing to
  st.query_params sends back the step it knows, an old one: nothing does so while controls are turned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

import numpy as np
import streamlit as st

from kernels import cuda
from kernels.presets import CONV_PRESETS, Preset
from kernels.program import Ladder, Launch
from kernels.shapes import Bound, ConvShape, conv_bounds
from pages import _address
from pages._address import Asked
from pages._look import tokens
from visuals import pictures
from visuals.inputs import Inputs, outputs
from visuals.pictures import CUSTOM, UPLOAD, PictureError
from visuals.scenes.im2col import copies_per_pixel

CHIPS = {
    "toy": "Toy 8×8", "cudnn-paper": "cuDNN paper", "lenet-conv1": "LeNet conv1",
    "resnet50-conv1-n1": "ResNet-50 conv1", "resnet50-res3-3x3-n1": "res3 3×3",
    "resnet50-res2-1x1": "1×1", "vgg-conv1_2": "VGG conv1_2",
}  # fmt: skip
# Fields in the order of the line, those that share a group joined: (name, label, width in px).
FIELDS = (
    (("N", "N", 48),), (("C", "C", 60),), (("H", "H", 54), ("W", "W", 56)), (("K", "K", 60),),
    (("R", "R", 50), ("S", "S", 48)), (("u", "stride u", 87), ("v", "stride v", 87)),
    (("pad_h", "pad h", 72), ("pad_w", "pad w", 75)),
)  # fmt: skip
RARE = ((("dilation_h", "dilation h", 108), ("dilation_w", "dilation w", 108)),)


def heading(title: str, idea: str) -> None:
    """Title and three sentences; `idea` is HTML of ours, `.kt-math` and `.kt-<role>` set its words."""
    st.html(f'<h1 class="kt-title">{title}</h1><p class="kt-idea">{idea}</p>')


def note(*texts: str) -> None:
    """Messages about what could not be taken as asked, a line each; they may hold foreign text."""
    if texts:
        st.html(f'<p class="kt-note" role="status">{"<br>".join(map(escape, texts))}</p>')


# -- the controls --------------------------------------------------------------------------------
def conv_inputs(page: str, shown: bool = True, orders: Mapping[str, str] | None = None) -> Inputs:
    """Presets, choosers of picture, filter and order, fields and derived sizes; what they ask for, always
    valid. `page` is the page's file, for links to it. Not `shown`: the address alone is read."""
    asked = _asked(shown)
    upload = None
    if shown:
        with st.container(key="chips", horizontal=True):
            _presets(page, asked)
            upload = _picture_chooser(asked)
            _filter_chooser(asked)
            if orders:
                _order_chooser(orders)
        _fields(asked.shape)
    note(*st.session_state["_lesson"]["notes"])
    return _inputs(asked, upload)


def _asked(shown: bool) -> Asked:
    """What the parameters ask for now. In a browser the address says it; where there is none (tests),
    what the controls hold."""
    state = st.session_state
    address = {name: value for name, value in st.query_params.items() if name in _address.NAMES}
    fields = {name: state.get(name) for name in _address.NAMES}
    before = state.get("_lesson")  # of the last run
    turned = before is not None and fields != before["asked"].params()
    asked, notes = _address.read(fields if turned and st.context.url is None else address)
    if before is None:
        if notes:  # one entry of the browser's history, where the controls would each make their own
            others = {k: v for k, v in st.query_params.items() if k not in _address.NAMES}
            st.query_params.from_dict(others | _address.write(asked))
    elif asked == before["asked"]:
        notes = notes or before["notes"]
    elif not turned:
        # A link led to this same page: let the browser's address show it, as an entry Back returns to.
        # This sends the parameters of this run; after Back they stand there already.
        st.query_params.update({})
    if shown:
        for name, value in asked.params().items():
            if state.get(name) != value:
                state[name] = value
    state["_lesson"] = {"asked": asked, "notes": notes}
    return asked


# -- shape ---------------------------------------------------------------------------------------
def _presets(page: str, asked: Asked) -> None:
    link = preset_link(page)
    for key, label in CHIPS.items():
        preset = CONV_PRESETS[key]
        link(preset, f"**{label}**" if preset.shape == asked.shape else label)


def preset_link(page: str) -> Callable[[Preset, str], None]:
    """A function that draws a link to a preset, every control kept but the moment of the stage."""
    asked = st.session_state["_lesson"]["asked"]
    kept = {k: v for k, v in st.query_params.items() if k not in (*_address.NAMES, *_address.STAGE)}

    def link(preset: Preset, label: str) -> None:
        st.page_link(
            page, label=label, query_params=kept | _address.at(asked, preset.shape), help=preset.source
        )

    return link


def _fields(shape: ConvShape) -> None:
    bounds = conv_bounds(shape, _address.MOST)
    with st.container(key="params", horizontal=True):
        for group in FIELDS:
            _group(group, bounds)
        with st.container(key="chips_more", width="content"), st.popover(_more_label(shape), key="more"):
            with st.container(key="params_rare", horizontal=True):
                for group in RARE:
                    _group(group, bounds)
            _choose("mode")
            st.caption(
                "Deep-learning frameworks do not flip the filter: cross-correlation. The convolution "
                "of mathematics, and of the cuDNN paper, flips it in both axes."
            )
        st.html(
            f'<p class="kt-derived">output <b>{shape.P}×{shape.Q}</b> · data matrix <b>{shape.CRS:,}×'
            f"{shape.PQ:,}</b>{' an image' if shape.N > 1 else ''} · copies per pixel up to <b>{copies_per_pixel(shape)}</b></p>"
        )
    limits = [_limit(name, shape.params()[name], bound) for name, bound in bounds.items()]
    if any(limits):
        st.html(f'<p class="kt-quiet">{" · ".join(escape(text) for text in limits if text)}</p>')


def _more_label(shape: ConvShape) -> str:
    """What the popover hides, where it is not the usual."""
    parts = []
    if shape.dilation != (1, 1):
        parts.append(f"dilation {shape.dilation_h}×{shape.dilation_w}")
    if shape.flip:
        parts.append("filter flipped")
    return ", ".join(parts) or "more"


def _group(group: tuple[tuple[str, str, int], ...], bounds: dict[str, Bound]) -> None:
    with st.container(key=f"pair_{group[0][0]}", horizontal=True, width="content", gap=None):
        for name, label, width in group:
            _number(name, label, width, bounds[name])


def _number(name: str, label: str, width: int, bound: Bound) -> None:
    usual = _address.DEFAULT.params()[name]
    st.number_input(
        label,
        min_value=float(bound.low),
        max_value=float(bound.high),
        value=float(usual) if bound.low <= usual <= bound.high else None,
        step=1.0,
        format="%.0f",
        required=True,
        key=name,
        bind="query-params",
        width=width,
    )


def _limit(name: str, value: int, bound: Bound) -> str:
    """The rule that keeps a field from going on, where it stands at one."""
    if value == bound.high and bound.why_high and bound.high > bound.low:
        return f"{name} ≤ {bound.high} here: {bound.why_high}"
    if value == bound.low and bound.why_low:
        return f"{name} ≥ {bound.low} here: {bound.why_low}"
    return ""


# -- picture and filters -------------------------------------------------------------------------
def _inputs(asked: Asked, upload: bytes | None) -> Inputs:
    """The inputs asked for; what cannot be had is named and replaced."""
    s, picture, first, custom, planes = asked.shape, asked.picture, asked.filter, None, None
    if picture == UPLOAD:
        try:
            planes = _decoded(upload, s.H, s.W, min(s.C, 3)) if upload else None
            if upload is None:
                note(
                    "Choose a file under “picture”: one of your own does not travel in a link. Until then: the digit."
                )
        except PictureError as error:
            note(f"{error}. Until then: the digit.")
    if first == CUSTOM:
        try:
            custom = pictures.parse_taps(asked.taps, s.R, s.S) if asked.taps.strip() else _usual_taps(s)
        except PictureError as error:
            note(f"{error}. Until then: sharpen.")
            custom = _usual_taps(s)
    return Inputs(s, "digit" if picture == UPLOAD else picture, first, asked.seed, custom, planes)


def _usual_taps(s: ConvShape) -> np.ndarray:
    return pictures.taps("sharpen", s.R, s.S)


@st.cache_data(max_entries=16, show_spinner=False)
def _decoded(data: bytes, H: int, W: int, planes: int) -> np.ndarray:
    return pictures.upload_planes(data, H, W, planes)


def _choose(name: str) -> None:
    st.pills(
        name,
        _address.CHOICES[name],
        default=_address.DEFAULT.params()[name],
        required=True,
        key=name,
        bind="query-params",
        label_visibility="collapsed",
    )


def _picture_chooser(asked: Asked) -> bytes | None:
    """The file of the reader's own, where one is chosen."""
    upload = None
    with st.popover(f"picture: {asked.picture}", key="picture_chooser"):
        _choose("picture")
        if asked.picture == UPLOAD:
            file = st.file_uploader("PNG or JPEG, at most 10 MB and 40 megapixels", ["png", "jpg", "jpeg"])
            upload = file.getvalue() if file else None
        # A control that is not drawn would leave the address: it is hidden instead.
        with st.container(key="seed_line" if "random" in (asked.picture, asked.filter) else "away_seed"):
            st.number_input("seed of what is random", 0.0, float(pictures.MOST_SEED), 0.0, 1.0, "%.0f",
                            required=True, key="seed", bind="query-params", width=180)  # fmt: skip
    return upload


def _filter_chooser(asked: Asked) -> None:
    s = asked.shape
    with st.popover(f"filter: {asked.filter}", key="filter_chooser"):
        _choose("filter")
        with st.container(key="taps_grid" if asked.filter == CUSTOM else "away_taps"):
            st.text_area(
                f"{s.R} × {s.S} taps, a line a row",
                key="taps",
                bind="query-params",
                max_chars=_address.MOST_TEXT,
                placeholder=pictures.taps_text(_usual_taps(s)),
                height=34 + 22 * max(2, s.R),
            )
        names = pictures.filter_names(min(s.K, 8), asked.filter)
        st.caption(
            "Filters in order: "
            + ", ".join(names)
            + (", …" if s.K > 8 else "")
            + ". The same taps on every channel."
        )


def show_pictures(inputs: Inputs) -> None:
    """The input's first channel, and beside it the first plane of the output, whole."""
    s, t, x = inputs.shape, tokens(), inputs.planes()[0]
    y = outputs(inputs, 1, s.P, s.Q)[0]
    name = "your picture" if inputs.upload is not None else inputs.picture
    span = f"from {y.min():.4g} to {y.max():.4g}".replace("-", "−")
    shown = (
        (x, "input", f"Input: {name}, {s.H} × {s.W}" + (", first channel" if s.C > 1 else "")),
        (y, "output", f"Output of filter 1, {inputs.names()[0]}, {s.P} × {s.Q}, {span}"),
    )
    figures = ""
    for values, role, caption in shown:
        uri = pictures.data_uri(pictures.picture_rgb(values, t[role], t["ground"], t["ink"]))
        figures += f'<figure><img src="{uri}" alt="{escape(caption)}"><figcaption>{escape(caption)}</figcaption></figure>'
    st.html(f'<div class="kt-pictures">{figures}</div>')


def chosen(name: str, choices: Iterable[str]) -> str:
    """What the address asks for among `choices`, the first where it names none of them. The address is
    believed, not the control, which in a closed popover misses what a link or Back has changed."""
    told = st.query_params.get(name) if st.context.url else st.session_state.get(name)
    return told if told in choices else next(iter(choices))


def option(name: str, choices: Sequence[str]) -> str:
    """A choice bound to the address, the first being the default."""
    st.session_state[name] = value = chosen(name, choices)
    st.pills(name, choices, default=choices[0], required=True, key=name, bind="query-params")
    return value


def _order_chooser(orders: Mapping[str, str]) -> None:
    """In whose order the stage plays; `orders` tells each in words."""
    with st.popover(f"order: {chosen('order', orders)}", key="order_chooser"):
        option("order", list(orders))
        st.caption(" ".join(f"{name}: {words}." for name, words in orders.items()))


# -- the parts of a page ---------------------------------------------------------------------------
PARTS = frozenset({"watch", "kernel", "run", "why"})


def parts() -> frozenset[str]:
    """The parts asked for: ?view=watch gives one alone, for embedding, ?present=1 the stage for a lecture
    hall; anything else the whole page."""
    view = "watch" if _address.presents(st.query_params) else st.query_params.get("view")
    return frozenset({view}) if view in PARTS else PARTS


def settled() -> bool:
    """False in a browser's first run of a page: charts and code listings bring megabytes of script, which
    would hold up the stage's first paint. They wait for the run that `settle_soon` asks for."""
    return st.context.url is None or "_settled" in st.session_state


@st.fragment(run_every=0.5)
def settle_soon() -> None:
    """Run the page again shortly, now with everything on it."""
    if "_waited" in st.session_state:  # the second time: the first is the page's own run
        st.session_state["_settled"] = True
        st.rerun()
    st.session_state["_waited"] = True


def below():
    """The container of what stands under the cards: pictures left, kernels right, where there is room."""
    return st.container(key="below", horizontal=True)


def show_kernels(ladder: Ladder, shape: ConvShape) -> None:
    """The CUDA C++ of every rung, word for word what Run compiles."""
    programs = [rung.build(shape, rung.default_tiles) for rung in ladder.rungs]
    steps = [step for program in programs for step in program.steps if isinstance(step, Launch)]
    files = sorted({step.source for step in steps})
    files += sorted({header for file in files for header in cuda.headers(file)})
    with st.container(key="kernels"):
        st.html(
            '<h2 class="kt-card">Kernel</h2><p class="kt-quiet">Word for word what Run compiles on a GPU.</p>'
        )
        if not settled():
            return
        for tab, file in zip(st.tabs([file.rpartition("/")[2] for file in files]), files, strict=True):
            tab.code(cuda.text(file), language="cpp", line_numbers=True)
