"""Train: a network as a graph of kernel launches, its memory, and how it learns on this processor."""

from kernels.i18n import tr
from pages.parts import lesson, query
from pages.parts.text import idea, note_in_place
from pages.train import address, cards, controls
from pages.train.chapters import STORY
from pages.train.stage import TrainStage

PAGE = "train/page.py"

chapter = STORY.open()
parts, whole = lesson.begin(tr("Train: a network that learns"), page=PAGE, chapter=chapter)
visible = whole and not chapter
values, notes = query.current_values(address.FIELDS, visible)
query.follow_link("_network", values["network"])
with lesson.controls(visible):
    if visible:
        controls.draw(PAGE, address.FIELDS, values)
_, reason = address.scene(values, {})
note_in_place(*notes, reason)
if "watch" in parts:
    TrainStage(values, chapter).draw()
if whole:
    idea(
        tr(
            "A training step runs the network forward, compares its outputs with the labels, and goes back through every "
            "layer. Each box is a kernel launch, each tensor between them takes memory. Then one launch changes all weights."
        )
    )
if {"run", "why"} & parts:
    cards.section(values)
lesson.load_deferred(parts)
