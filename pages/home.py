"""The first screen: a stage that plays, the recorded times of its kernels, ways in for three readers, the course."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import streamlit as st

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.gemm.presets import GEMM_PRESETS
from kernels.i18n import language, mark, tr
from kernels.machine.status import Status
from kernels.model.row import Row
from kernels.model.rung import Rung
from pages import _course, _language
from pages._lessons import LESSONS, Lesson
from pages._reading import reading
from pages._teasers import BY_PAGE, FIRST
from pages.conv import address as conv_address
from pages.conv.choose import address as choose_address
from pages.gemm import address as gemm_address
from pages.parts import lesson
from pages.parts.query import explored
from pages.parts.text import details, paragraph
from visuals import stage, units
from visuals.conv.im2col.notes import IM2COL

PROMISE = mark("Watch a CUDA kernel, then measure it.")
IDEA = mark("GPU kernels, explained by running them. The picture shows the CUDA kernel that is checked and timed.")
SHAPE = conv_address.read(FIRST.params)[0].shape
ENGINES = {
    "cuda": mark("times the CUDA kernels"),
    "emulator": mark("runs and counts the CUDA kernels, without a GPU"),
    "cpu": mark("times NumPy and Numba versions of the kernels"),
}
REAL = gemm_address.at_shape(gemm_address.ADDRESS.read({})[0], GEMM_PRESETS["square-4096"].shape)
# For each kind of reader: links (label, page, URL parameters), and what to know, folded.
WAYS = (
    (
        mark("I teach"),
        ((mark("A chapter for the projector"), "gemm/page.py", {"view": "story", "chapter": "1", "present": "1"}),),
        (
            mark(
                "On the projector the arrow keys step the picture, then turn the chapter. G shows the answer of a question."
            ),
            mark(
                "Add present=1 to the URL of any chapter. Under the picture, “link” copies it as a slide or an iframe."
            ),
            mark("The folder docs/deck has an example talk."),
        ),
    ),
    (
        mark("I tune kernels"),
        (
            (mark("GEMM at a real size"), "gemm/page.py", explored(REAL)),
            (mark("Every convolution in one race"), "conv/choose/page.py", explored({})),
            (mark("Recorded runs"), "history/page.py", {}),
        ),
        (),
    ),
    (
        mark("I just want to see it"),
        (
            (mark("Play a convolution"), "conv/im2col.py", {"view": "story", "play": "1"}),
            (mark("The terms of the field"), "glossary.py", {}),
        ),
        (),
    ),
)
# Kernels on the teaser of a lesson without a picture, by the lesson; of any other the fastest ones.
RACES = {"implicit": ("conv/im2col-gemm", "conv/implicit-gemm")}
RACERS = 3
RACE = CONV_PRESETS["resnet50-res3-3x3-n32"]  # the layer
# This page only shows the stage. The hidden controls are in the lesson, one click away.
HIDE = ("kernel", "explain", "readings", "order", "colours", "take", "link", "help", "loop")
HEIGHT, TEASER_HEIGHT = 530, 220


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
    rows = _recorded(rungs, SHAPE)
    if not rows:
        return ""
    notes = map(paragraph, (IM2COL.gain(rows), IM2COL.cost(SHAPE)))
    return _section(tr("This convolution, timed")) + _bars(rungs, rows) + details(*notes)


@st.cache_data(show_spinner=False)
def race(path: str, language: str) -> str:
    """Returns HTML with recorded times of convolutions for the teaser of a lesson, in the language; "" if there are
    none.

    Those of RACES, else the fastest ones.
    """
    rows = _recorded(choose_address.LADDER.rungs, RACE.shape)
    fastest = sorted(rows, key=lambda name: rows[name]["median_ms"])[:RACERS]
    shown = [name for name in RACES.get(path, fastest) if name in rows]
    if not shown:
        return ""
    layer = paragraph(tr(RACE.label))
    return layer + _bars([choose_address.LADDER.rung(name) for name in shown], rows)


def _recorded(rungs: Iterable[Rung], shape: ConvShape) -> dict[str, Row]:
    return {r.name: row for r in rungs if (row := records.recorded(r.name, shape, r.default_tiles))}


def _bars(rungs: Sequence[Rung], rows: Mapping[str, Row]) -> str:
    """Returns HTML with a bar for each rung that has a row."""
    shown = [rung for rung in rungs if rung.name in rows]
    max_ms = max(rows[rung.name]["p80_ms"] for rung in shown)
    bars = "".join(_bar(rung.title_on("cuda"), rows[rung.name], max_ms) for rung in shown)
    badge = units.badge("recorded", units.provenance(rows[shown[0].name]))
    return f'<p class="kt-figures">{badge}</p><dl class="kt-bars">{bars}</dl>'


def _section(text: str) -> str:
    return f'<h2 class="kt-section">{escape(text)}</h2>'


def _bar(title: str, row: Row, max_ms: float) -> str:
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
    st.html(f'<div class="kt-home"><h1 class="kt-title">{tr(PROMISE)}</h1><p class="kt-idea">{tr(IDEA)}</p></div>')
    with st.container(key="hero", horizontal=True):
        with st.container(key="hero_stage"):
            _play(height=HEIGHT, param=None)
        with st.container(key="hero_side"):
            st.html(measured(language()))
            with st.container(key="enter"):
                label = tr("Open this lesson and run it")
                st.page_link(FIRST.page, label=label, query_params=_language.kept())
            st.html(_machine())


def _play(**options) -> None:
    """Draws the first stage. In present mode it follows the URL and fills the frame; beside the teasers it does
    neither."""
    stage.mount(FIRST.build_scene(), key="home", play=True, hide=HIDE, **options)


def _ways() -> None:
    """Draws the links for a teacher, for a performance engineer, and for a reader who is curious."""
    with st.container(key="ways", horizontal=True):
        for n, (title, links, notes) in enumerate(WAYS):
            with st.container(key=f"way_{n}", gap=None):
                st.html(_section(tr(title)))
                for label, page, params in links:
                    st.page_link(page, label=tr(label), query_params=params | _language.kept())
                st.html(details(*map(paragraph, map(tr, notes)), label=tr("How")) or "<span></span>")


def _lesson(n: int, row: Lesson) -> None:
    """Draws a lesson: a moment of its stage or recorded times, its question, and the line of its progress."""
    with st.container(key=f"lesson_{n}"):
        if teaser := BY_PAGE.get(row.page):
            stage.mount(
                teaser.build_scene(), key=f"preview_{n}", step=teaser.step, height=TEASER_HEIGHT, param=None, still=True
            )
        else:
            st.html(f'<div class="kt-race">{race(row.path, language())}</div>')
        st.page_link(row.page, label=f"{n + 1} {tr(row.title)}", query_params=_language.kept())
        st.html(paragraph(tr(row.question), "question"))
        _course.progress(row)
        st.html(reading(row.path))


def _map() -> None:
    st.html(_section(tr("The lessons, in order")))
    with st.container(key="lessons", horizontal=True):
        for n, row in enumerate(LESSONS):
            _lesson(n, row)
    rule = tr(_course.RULE, words=_course.WORDS_A_MINUTE)
    kept = tr("Only this browser knows which chapters you have seen.")
    st.html(details(paragraph(rule), paragraph(kept)))


if lesson.parts() == {"watch"}:
    _play()
else:
    _hero()
    _ways()
    _map()
