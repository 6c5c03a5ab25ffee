"""CPU and GPU: the same work on both, over its size, with and without copies."""

from kernels.i18n import tr
from pages.offload import address, cards, controls, stage
from pages.offload.chapters import STORY
from pages.parts import lesson, query
from pages.parts.text import idea, note

PAGE = "offload/page.py"

chapter = STORY.open()
parts, whole = lesson.begin(tr("CPU and GPU"), page=PAGE, chapter=chapter)
visible = whole and not chapter
values, notes = query.current_values(address.FIELDS, visible)
query.follow_link("_work", (values["work"], values["copies"], values["picture"]))
with lesson.controls(visible):
    if visible:
        controls.draw(PAGE, address.FIELDS, values)
note(*notes)
if "watch" in parts:
    stage.draw(values, chapter)
if whole:
    idea(
        tr(
            "A processor begins at once. A GPU needs a launch, and its data must be copied to it first. Then it computes far more at "
            "a time. So the size of the work decides which of the two is faster."
        )
    )
if {"run", "why"} & parts:
    cards.section(values)
lesson.load_deferred(parts)
