"""Parallel training: one training step on several GPUs, on a time axis and by what each GPU holds."""

from kernels.i18n import tr
from pages.parallel import address, cards, controls, stage
from pages.parallel.chapters import STORY
from pages.parts.address import Values
from pages.parts.values_page import Parts, ValuesPage


def panels(values: Values, _: Parts) -> None:
    if address.scene(values)[0]:
        cards.section(values)


ValuesPage(
    page=controls.PAGE,
    title=tr("Parallel training: one step on many GPUs"),
    about=tr(
        "Several GPUs train one network together. Each of them gets a part of the images, of the layers, or of each layer. "
        "What they compute apart must be put together again, and that takes time on the links between them."
    ),
    fields=address.FIELDS,
    linked=("network", "way"),
    controls=controls.draw,
    stage=lambda values, chapter: stage.draw(values, address.scene(values)[0], chapter),
    cards=panels,
    wrong=lambda values: [address.scene(values)[1] or address.too_large(values)],
).draw(STORY.open())
