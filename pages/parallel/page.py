"""Parallel training: one training step on several GPUs, on a time axis and by what each GPU holds."""

from kernels.i18n import tr
from pages.parallel import address, cards, controls, stage
from pages.parallel.chapters import STORY
from pages.parts import lesson, query
from pages.parts.text import idea, note

PAGE = "parallel/page.py"

chapter = STORY.open()
parts, whole = lesson.begin(tr("Parallel training: one step on many GPUs"), page=PAGE, chapter=chapter)
visible = whole and not chapter
values, notes = query.current_values(address.FIELDS, visible)
query.follow_link("_parallel", (values["network"], values["way"]))
with lesson.controls(visible):
    if visible:
        controls.draw(PAGE, address.FIELDS, values)
scene, reason = address.scene(values)
note(*notes, *filter(None, [reason or address.too_large(values)]))
if "watch" in parts:
    stage.draw(values, scene, chapter)
if whole:
    idea(
        tr(
            "Several GPUs train one network together. Each of them gets a part of the images, of the layers, or of each layer. "
            "What they compute apart must be put together again, and that takes time on the links between them."
        )
    )
if {"run", "why"} & parts and scene:
    cards.section(values)
lesson.load_deferred(parts)
