"""Moving data: copies, kernels and allocations as a program on an axis of time."""

from kernels.i18n import tr
from pages.parts import lesson, query
from pages.parts.text import idea, note
from pages.transfers import address, cards, controls, stage
from pages.transfers.chapters import STORY

PAGE = "transfers/page.py"

chapter = STORY.open()
parts, whole = lesson.begin(tr("Moving data"), page=PAGE, chapter=chapter)
visible = whole and not chapter
values, notes = query.current_values(address.FIELDS, visible)
query.follow_link("_scenario", values["scenario"])
with lesson.controls(visible):
    if visible:
        controls.draw(PAGE, address.FIELDS, values)
note(*notes)
if "watch" in parts:
    stage.draw(values, chapter)
if whole:
    idea(
        tr(
            "A kernel computes with data in the GPU’s memory. Before and after it, data cross a bus that is far slower than this "
            "memory. The program beside the picture is what runs: each line lights the box that it starts."
        )
    )
if {"run", "why"} & parts:
    cards.section(values)
lesson.load_deferred(parts)
