"""Fusion: a chain of blocks, a launch each or as few as can be, and the kernels written for it."""

from kernels.i18n import tr
from pages.fusion import address, cards, controls
from pages.fusion.chapters import STORY
from pages.parts.ladder_page import LadderPage, Played
from pages.parts.query import chosen
from visuals.fusion import notes

LadderPage(
    page=controls.PAGE,
    stage="fusion",
    title=tr("Fusion: many blocks, one kernel"),
    about=tr(
        'A chain of blocks can run as many kernels or as one: <span class="kt-math"><span class="kt-output">y</span> = relu(bn(conv('
        '<span class="kt-input">x</span>, <span class="kt-filter">w</span>) + <span class="kt-filter">b</span>))</span>. With one '
        'launch per block, each kernel stores a <span class="kt-workspace">map</span> in HBM (the GPU’s main memory) for the next '
        "kernel. A fused kernel applies all blocks while a value is in a register. Fusion saves time if memory or launches limit "
        "the chain, but little time if arithmetic limits it."
    ),
    ladder=address.LADDER,
    notes=lambda _: notes.FUSION,
    read=controls.read,
    play=lambda selected: Played(*address.scene(selected, chosen("order", address.ORDERS)), address.ORDERS),
    sizes=controls.sizes,
    more=cards.section,
    file=address.first_source,
).draw(STORY.open())
