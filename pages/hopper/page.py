"""Hopper: tensor cores that read shared memory, the copy engine, and warpgroups with roles."""

from kernels import records
from kernels.i18n import tr
from pages.hopper import address, controls
from pages.hopper.chapters import STORY
from pages.parts import gpu_choice
from pages.parts.ladder_page import LadderPage, Played
from pages.parts.query import chosen
from pages.parts.rung_address import Selection
from pages.parts.rung_picker import reader
from visuals.gemm import notes

PAGE = "hopper/page.py"


def play(selected: Selection) -> Played:
    order, mode = chosen("order", address.ORDERS), chosen(controls.SWIZZLE, address.MODES)
    rung, warp = selected.rung.name, int(chosen(controls.WARP, address.WARPS))
    found = address.scene(selected.shape, rung, tuple(selected.tiles.items()), order, mode, warp)
    return Played(*found, address.ORDERS)


gpu_choice.prefer(records.covering(*address.OWN))
LadderPage(
    page=PAGE,
    stage="hopper",
    title=tr("Hopper: the copy engine, wgmma and warps with roles"),
    about=tr(
        "On Hopper one thread starts the copy of a whole tile of "
        '<span class="kt-input">A</span> or <span class="kt-filter">B</span>, and the copy engine does it. One instruction '
        "of 128 threads then multiplies both tiles where they are, in shared memory. So warps get roles: some load, "
        "others multiply, and barriers in shared memory tell each which tile is ready."
    ),
    ladder=address.LADDER,
    notes=lambda _: notes.HOPPER,
    read=reader(PAGE, address.ADDRESS, controls.draw),
    play=play,
    sizes=controls.sizes,
    more=controls.rate_card,
).draw(STORY.open())
