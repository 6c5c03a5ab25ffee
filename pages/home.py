"""The first screen: a stage that plays, the recorded times of its kernels, and the cards of the lessons."""

from html import escape

import streamlit as st

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.i18n import language, mark, tr
from kernels.machine.status import Status
from pages import _language
from pages._cards import CARDS, FIRST, LAYERS, Card
from pages.conv import address as conv_address
from pages.parts import lesson
from pages.parts.text import details, paragraph
from visuals import stage
from visuals.charts import units
from visuals.conv.im2col.story import IM2COL

PROMISE = mark("What you watch is what you measured.")
IDEA = mark(
    "GPU kernels, explained by running them. The picture shows the CUDA kernel that is checked and timed."
)
SHAPE = conv_address.read(FIRST.params)[0].shape
ENGINES = {
    "cuda": mark("times the CUDA kernels"),
    "emulator": mark("runs and counts the CUDA kernels, without a GPU"),
    "cpu": mark("times NumPy and Numba versions of the kernels"),
}
# This page only shows the stage. The hidden controls are in the lesson, one click away.
HIDE = ("kernel", "explain", "readings", "order", "colours", "take", "link", "help", "loop")
HEIGHT, CARD_HEIGHT = 530, 220


@st.cache_data(ttl=60, show_spinner=False)
def engines(language: str) -> dict[str, tuple[bool, str]]:
    """Returns the engines of this machine: name -> (ready, text), with texts in the language.

    The text is the device, or why the engine is absent and what to do. The result is empty if the engines cannot be
    imported.
    """
    try:
        from kernels.engines import available
    except ImportError:
        return {}
    found = available()
    return {name: (found[name].ready, _device(found[name])) for name in ENGINES if name in found}


def _device(status: Status) -> str:
    """Returns the device and which of several it is, or why it is absent."""
    if status.ready:
        return ", ".join(filter(None, (status.text, status.which)))
    return f"{status.why}." if status.advice else status.text


@st.cache_data(show_spinner=False)
def measured(language: str) -> str:
    """Returns HTML with the recorded times of every rung at the shape on the stage; "" if there are none.

    Its texts are in the language, which is that of the reader.
    """
    rungs = conv_address.ladder("im2col").rungs
    rows = {r.name: row for r in rungs if (row := records.recorded(r.name, SHAPE, r.default_tiles))}
    if not rows:
        return ""
    max_ms = max(row["p80_ms"] for row in rows.values())
    bars = "".join(_bar(r.title_on("cuda"), rows[r.name], max_ms) for r in rungs if r.name in rows)
    badge = units.badge("recorded", units.provenance(next(iter(rows.values()))))
    notes = map(paragraph, (IM2COL.gain(rows), IM2COL.cost(SHAPE)))
    return (
        _section(tr("This convolution, timed"))
        + f'<p class="kt-figures">{badge}</p><dl class="kt-bars">{bars}</dl>'
        + details(*notes)
    )


def _section(text: str) -> str:
    return f'<h2 class="kt-section">{escape(text)}</h2>'


def _bar(title: str, row: dict, max_ms: float) -> str:
    """Returns HTML that shows a median as a bar and its spread (p20 to p80) as a line in the bar."""
    long, low, high = (f"{100 * row[name] / max_ms:.1f}%" for name in ("median_ms", "p20_ms", "p80_ms"))
    return (
        f'<div><dt>{escape(title)}</dt><dd class="kt-bar"><i style="width:{long}"></i><b style="left:{low};right:calc(100% - {high})">'
        f"</b></dd><dd>{units.time_(row['median_ms'])}</dd></div>"
    )


def _machine() -> str:
    found = engines(language())
    if not found:
        return paragraph(tr("The lessons play on this machine without a GPU."))
    rows = "".join(
        f'<tr class="{"kt-here" if ready else "kt-absent"}"><th>{escape(name)}</th><td>{escape(text)}</td></tr>'
        for name, (ready, text) in found.items()
    )
    notes = details(*(paragraph(f"{name}: {tr(ENGINES[name])}.") for name in found))
    table = f'<table class="kt-table kt-engines">{rows}</table>'
    return _section(tr("On this machine")) + table + notes


def _hero() -> None:
    st.html(
        f'<div class="kt-home"><h1 class="kt-title">{tr(PROMISE)}</h1><p class="kt-idea">{tr(IDEA)}</p></div>'
    )
    with st.container(key="hero", horizontal=True):
        with st.container(key="hero_stage"):
            _play(height=HEIGHT, param=None)
        with st.container(key="hero_side"):
            st.html(measured(language()))
            with st.container(key="enter"):
                label = tr("Open this lesson and run it")
                st.page_link(FIRST.page, label=label, query_params=FIRST.query() | _language.kept())
            st.html(_machine())


def _play(**options) -> None:
    """Draws the first stage. In present mode it follows the URL and fills the frame; beside the cards it does neither."""
    stage.mount(FIRST.build_scene(), key="home", play=True, hide=HIDE, **options)


def _card(n: int, card: Card) -> None:
    with st.container(key=f"lesson_{n}"):
        stage.mount(
            card.build_scene(), key=f"preview_{n}", step=card.step, height=CARD_HEIGHT, param=None, still=True
        )
        st.page_link(card.page, label=tr(card.title), query_params=card.query() | _language.kept())
        st.html(paragraph(tr(card.text)))


def _layers() -> None:
    with st.container(key="chips", horizontal=True):
        st.html(paragraph(tr("Well-known layers:")))
        for key, label in LAYERS.items():
            preset = CONV_PRESETS[key]
            query = conv_address.at_shape(conv_address.DEFAULT, preset.shape) | _language.kept()
            st.page_link("conv/im2col.py", label=tr(label), query_params=query, help=preset.source)


if lesson.parts() == {"watch"}:
    _play()
else:
    _hero()
    st.html(_section(tr("Examples from the lessons")))
    with st.container(key="lessons", horizontal=True):
        for n, card in enumerate(CARDS):
            _card(n, card)
    _layers()
