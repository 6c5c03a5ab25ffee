"""The sentences of a GPU map."""

from __future__ import annotations

from dataclasses import replace

from kernels.i18n import mark, tr, trn
from visuals import units
from visuals.gpu_map.data import MOST, ONCE, Amount, Blocks, Gpu, GpuMap, Kernel
from visuals.gpu_map.waves import Waves, places, wave_count
from visuals.units import whole

LIMITS = {
    "warps": mark("it has no space for more warps"),
    "blocks": mark("it takes no more blocks"),
    "registers": mark("its registers are used up then"),
    "shared memory": mark("its shared memory is used up then"),
}
MAP = "map"  # the order's name in a URL
DESCRIPTION = mark("the blocks on the whole GPU, wave by wave, and the bytes between its memories")
NO_MAP = mark(
    "How many blocks fit on an SM is not known for these tile sizes: the kernel is not compiled ahead. The stage shows "
    "the explaining order instead."
)
ORDER = mark("on the GPU")
ORDER_NOTE = mark(
    "The map lets all blocks take equally long, so they run in waves. A real GPU starts a new block on an SM as soon as "
    "one ends there, in an order that is not documented. The GPU is the one of the recordings."
)


def size(amount: Amount) -> str:
    """Returns an amount in a sentence: "at most 8.19 KB", "an unknown number of bytes"."""
    if amount.bytes is None:
        return tr("an unknown number of bytes")
    text = units.bytes_(amount.bytes)
    return tr("at most {bytes}", bytes=text) if amount.limit == MOST else text


def moved(amount: Amount) -> str:
    """Returns an amount without its limit, for a text that names that itself."""
    return size(replace(amount, limit=""))


# What the bytes on the arrows are those of.
ALL, LAUNCH, TILE = (
    mark("{bytes}, {kind}"),
    mark("{bytes} in this launch, {kind}"),
    mark("{bytes} for this tile, {kind}"),
)
VERBS = {
    (False, False): mark("read: {amount}"),
    (False, True): mark("read once: {amount}"),
    (True, False): mark("stored: {amount}"),
    (True, True): mark("stored once: {amount}"),
}


def label(amount: Amount, of: str, written: bool) -> str:
    """Returns the label of an arrow: the bytes of everything, a launch or a tile, and how they are known."""
    once = amount.limit == ONCE and amount.bytes is not None
    text = moved(amount) if once else size(amount)
    known = tr("not known") if amount.bytes is None else tr(of, bytes=text, kind=tr(amount.kind))
    return tr(VERBS[written, once], amount=known)


# -- blocks on SMs -----------------------------------------------------------------------------------
def start(m: GpuMap) -> str:
    """Returns how large the first launch is, how many of its blocks fit on an SM, and in how many waves it runs."""
    b, gpu, kernel = m.kernels[0].blocks, m.gpu, m.kernels[0]
    name = tr("The launch") if len(m.kernels) == 1 else tr("Launch 1, {name},", name=kernel.name)
    count = wave_count(b.count, gpu.sms, b.resident)
    return " ".join(
        (
            tr("{launch} has {blocks} of {threads} threads.", launch=name, blocks=_blocks(b), threads=whole(b.threads)),
            trn(
                "One fits on an SM at a time: {why}.",
                "{n} fit on an SM at a time: {why}.",
                b.resident,
                why=tr(LIMITS[b.limit]),
            ),
            trn(
                "The {sms} SMs run up to {places} blocks at once: {n} wave.",
                "The {sms} SMs run up to {places} blocks at once: {n} waves.",
                count,
                sms=gpu.sms,
                places=whole(places(gpu.sms, b.resident)),
            ),
        )
    )


def waves(step: Waves, b: Blocks, gpu: Gpu) -> str:
    """Returns the sentence of a step that starts one wave or several."""
    count = wave_count(b.count, gpu.sms, b.resident)
    if step.last == count - 1 and step.first == step.last:
        return last_wave(step, b, gpu)
    fields = {"first": whole(step.start), "last": whole(step.stop - 1)}
    if step.first == step.last:
        wave = whole(step.first + 1)
        return tr("Wave {wave}: blocks {first} to {last} run, {n} on each SM.", wave=wave, n=b.resident, **fields)
    return tr(
        "Waves {a} to {b} are like the ones before: blocks {first} to {last}.",
        a=whole(step.first + 1),
        b=whole(step.last + 1),
        **fields,
    )


def last_wave(step: Waves, b: Blocks, gpu: Gpu) -> str:
    """Returns what the last wave leaves empty."""
    rest, size = b.count - step.last * places(gpu.sms, b.resident), places(gpu.sms, b.resident)
    name = tr("The last wave") if step.last else tr("The only wave")
    if rest == size:
        return tr("{name} has {n} blocks: every SM is full.", name=name, n=whole(rest))
    has = trn("{name} has {n} block.", "{name} has {n} blocks.", rest, name=name)
    if step.busy < gpu.sms:
        fields = {"busy": step.busy, "sms": gpu.sms, "idle": gpu.sms - step.busy}
        return f"{has} " + tr("It fills {busy} of {sms} SMs: {idle} have no work.", **fields)
    return f"{has} " + tr(
        "Every SM has work, but {free} of {size} places stay empty.", free=whole(size - rest), size=whole(size)
    )


# -- bytes ---------------------------------------------------------------------------------------------
def _names(m: GpuMap, names: tuple[str, ...]) -> str:
    *words, last = (f"[{m.operands[name].title}]({m.operands[name].role})" for name in names)
    return tr("{names} and {last}", names=", ".join(words), last=last) if words else last


def once(m: GpuMap, kernel: Kernel) -> str:
    """Returns what block 0 loads before its first tile."""
    fields = {"names": _names(m, kernel.once), "bytes": size(kernel.once_traffic.read[1])}
    return tr("Block 0 first loads its tile of {names}: {bytes}. It keeps it until the end.", **fields)


def into_l2(m: GpuMap, kernel: Kernel, tile: int) -> str:
    """Returns what block 0 needs for a tile, and where it comes from."""
    fields = {"n": whole(tile + 1), "names": _names(m, kernel.reads), "bytes": size(kernel.tile.read[1])}
    if kernel.tile.read[1].bytes is None and kernel.tiles == 1:
        text = tr("Block 0 reads its part of {names}.", **fields)
    elif kernel.tile.read[1].bytes is None:
        text = tr("Block 0 needs tile {n} of {names}.", **fields)
    elif kernel.tiles == 1:
        text = tr("Block 0 reads its part of {names}: {bytes}.", **fields)
    else:
        text = tr("Block 0 needs tile {n} of {names}: {bytes}.", **fields)
    return f"{text} " + tr("What L2 does not hold comes from HBM.")


def onto_sm(m: GpuMap, kernel: Kernel, tile: int) -> str:
    """Returns where a tile is kept on the SM."""
    if not m.shared:
        return tr("The values pass the L1 cache of the SM. The kernel keeps nothing in shared memory.")
    if kernel.computes:
        return tr("The tile is in shared memory now.")
    threads = whole(kernel.blocks.threads)
    return tr("The tile is in shared memory now. All {threads} threads of the block use it there.", threads=threads)


def into_registers(m: GpuMap, kernel: Kernel, tile: int) -> str:
    """Returns what the threads of block 0 load from there for a tile."""
    if kernel.computes:
        return kernel.computes
    amount, before = kernel.tile.read[2], kernel.tile.read[1]
    if amount.bytes is None:
        return tr("Each thread computes with values in its own registers.")
    text = tr("The threads load {bytes} from there into registers.", bytes=units.bytes_(amount.bytes))
    if m.shared and before.bytes:
        text += " " + tr("That is {ratio} times what came from L2.", ratio=units.ratio(amount.bytes / before.bytes))
    return text


def more_tiles(kernel: Kernel, first: int) -> str:
    """Returns what happens with the tiles that are not followed."""
    return tr("Tiles {first} to {last} take the same way.", first=whole(first + 1), last=whole(kernel.tiles))


def store(m: GpuMap, kernel: Kernel) -> str:
    """Returns where block 0 stores its results."""
    if kernel.stores:
        return kernel.stores
    output = m.operands[kernel.writes]
    return tr(
        "Block 0 is done. Its threads store their results to {output}.", output=f"[{output.title}]({output.role})"
    )


def others(kernel: Kernel) -> str:
    """Returns what the other blocks do."""
    return tr(
        "The other {n} blocks do the same with their tiles. A tile that L2 still holds does not come from HBM again.",
        n=whole(kernel.blocks.count - 1),
    )


def later_launch(m: GpuMap, n: int, kernel: Kernel) -> str:
    """Returns the blocks and waves of the launch with number n, from 0."""
    count = wave_count(kernel.blocks.count, m.gpu.sms, kernel.blocks.resident)
    fields = {"at": n + 1, "count": len(m.kernels), "name": kernel.name, "blocks": _blocks(kernel.blocks)}
    return trn(
        "Launch {at} of {count}, {name}: {blocks} in {n} wave.",
        "Launch {at} of {count}, {name}: {blocks} in {n} waves.",
        count,
        **fields,
    )


def _blocks(b: Blocks) -> str:
    return trn("{n} block", "{n} blocks", b.count)


def launch_bytes(m: GpuMap, n: int, kernel: Kernel) -> str:
    """Returns the bytes of HBM that the launch with number n, from 0, reads and writes."""
    fields = {"read": moved(kernel.total.read[0]), "written": moved(kernel.total.written[0])}
    return tr("Launch {n} reads {read} from HBM and writes {written}, if each value moves once.", n=n + 1, **fields)


def total(m: GpuMap) -> str:
    """Returns the bytes of all launches on each part of the way."""
    read, written = m.total.read, m.total.written
    last = m.kernels[-1]
    whom = (
        tr("All {blocks} blocks together", blocks=whole(last.blocks.count))
        if len(m.kernels) == 1
        else trn("The {n} launch together", "The {n} launches together", len(m.kernels))
    )
    text = tr(
        "{whom}: {read} from HBM and {written} back, if each value moves once.",
        whom=whom,
        read=moved(read[0]),
        written=moved(written[0]),
    )
    if read[1].bytes is not None:
        text += " " + tr("The SMs load {bytes} from L2.", bytes=size(read[1]))
    if read[2].bytes is not None:
        where = tr("shared memory") if m.shared else tr("the L1 cache")
        text += " " + tr("The threads load {bytes} from {where}.", bytes=size(read[2]), where=where)
    return text
