"""Softmax: three passes over a row, two, one; and why the maximum is subtracted first."""

from kernels.i18n import tr
from pages.parts.ladder_page import Drawn, LadderPage, Played
from pages.parts.rung_address import Selection
from pages.softmax import address, cards, controls
from pages.softmax.chapters import STORY
from visuals.softmax import notes


def panels(drawn: Drawn[Selection]) -> None:
    if cards.ROW in drawn.parts:
        cards.section(drawn.selected, controls.row(drawn.selected.shape))


LadderPage(
    page="softmax/page.py",
    stage="softmax",
    title=tr("Softmax: a row, its maximum, its sum"),
    about=tr(
        'Softmax turns each row into weights that add up to 1: <span class="kt-math"><span class="kt-output">y<sub>j</sub></span> = '
        'exp(<span class="kt-input">x<sub>j</sub></span> − <span class="kt-filter">m</span>) / '
        '<span class="kt-workspace">l</span></span>. Here <span class="kt-filter">m</span> is the maximum of the row, and '
        '<span class="kt-workspace">l</span> is the sum of the exponentials. Without <span class="kt-filter">m</span>, the result is '
        "the same until exp overflows. A kernel’s time depends on how many times it reads the row: three times, twice or once."
    ),
    ladder=address.LADDER,
    notes=lambda _: notes.SOFTMAX,
    read=controls.read,
    play=lambda selected: Played(*address.scene(selected, controls.row(selected.shape))),
    sizes=controls.sizes,
    more_parts=(cards.ROW,),
    panels=panels,
).draw(STORY.open())
