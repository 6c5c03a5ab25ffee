"""CPU and GPU: the same work on both, over its size, with and without copies."""

from kernels.i18n import tr
from pages.offload import address, cards, controls, stage
from pages.offload.chapters import STORY
from pages.parts.values_page import ValuesPage

ValuesPage(
    page=controls.PAGE,
    title=tr("CPU and GPU"),
    about=tr(
        "A processor begins at once. A GPU needs a launch, and its data must be copied to it first. Then it computes far more at "
        "a time. So the size of the work decides which of the two is faster."
    ),
    fields=address.FIELDS,
    linked=("work", "copies", "picture"),
    controls=controls.draw,
    stage=stage.draw,
    cards=lambda values, _: cards.section(values),
).draw(STORY.open())
