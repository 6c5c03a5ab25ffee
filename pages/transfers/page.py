"""Moving data: copies, kernels and allocations as a program on an axis of time."""

from kernels.i18n import tr
from pages.parts.values_page import ValuesPage
from pages.transfers import address, cards, controls, stage
from pages.transfers.chapters import STORY

ValuesPage(
    page=controls.PAGE,
    title=tr("Moving data"),
    about=tr(
        "A kernel computes with data in the GPU’s memory. Before and after it, data cross a bus that is far slower than this "
        "memory. The program beside the picture is what runs: each line lights the box that it starts."
    ),
    fields=address.FIELDS,
    linked=("scenario",),
    controls=controls.draw,
    stage=stage.draw,
    cards=lambda values, _: cards.section(values),
).draw(STORY.open())
