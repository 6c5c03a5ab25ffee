"""Train: a network as a graph of kernel launches, its memory, and how it learns on this processor."""

from kernels.i18n import tr
from pages.parts.values_page import ValuesPage
from pages.train import address, cards, controls
from pages.train.chapters import STORY
from pages.train.stage import TrainStage

ValuesPage(
    page=controls.PAGE,
    title=tr("Train: a network that learns"),
    about=tr(
        "A training step runs the network forward, compares its outputs with the labels, and goes back through every "
        "layer. Each box is a kernel launch, each tensor between them takes memory. Then one launch changes all weights."
    ),
    fields=address.FIELDS,
    linked=("network",),
    controls=controls.draw,
    stage=lambda values, chapter: TrainStage(values, chapter).draw(),
    cards=lambda values, _: cards.section(values),
    wrong=lambda values: [address.scene(values, {})[1]],
).draw(STORY.open())
