"""What limits the kernel on the stage: launch overhead, memory bandwidth, arithmetic and its accesses, as shares."""

from __future__ import annotations

from kernels.i18n import mark, tr
from kernels.model.row import Json
from kernels.records import comparable
from kernels.records.statistics import fastest
from visuals import units
from visuals.charts import bandwidth, bars, products, roofline
from visuals.strip.evidence import Evidence, Row

LAUNCH = 0.2  # the share of the time from which launch overhead limits a kernel
LIMIT, NEAR, FAR = 0.8, 0.6, 0.3  # shares of a ceiling: it limits from here, is near from here, is far below
FASTER = 1.2  # from here on a kernel that moves as many bytes shows that memory bandwidth does not limit another
SAME_BYTES = 0.99  # of a kernel's bytes, from which another one moves as many
OF_LAUNCH = mark("The share of the time that empty kernels take, as many as this one has launches.")
OF_MEMORY = mark(
    "The bytes that the kernel must move through memory, per second, as a share of what a copy reaches on this GPU."
)
OF_ARITHMETIC = mark(
    "The operations of the kernel, per second, as a share of what FP32 arithmetic reaches on this GPU."
)
OF_PRODUCT = mark(
    "The kernel's operations per second, as a share of the fastest {format} product recorded on this GPU: {rate}. "
    "The peak of its tensor cores was not measured."
)
OF_NO_LOADS = mark("No warp loads from global memory. The copy engine (TMA) may copy from it.")
NAMES = ("launch", "memory", "arithmetic")  # of shares
CEILINGS = {"memory": mark("memory bandwidth"), "arithmetic": mark("FP32 arithmetic")}
LANES = 32  # of a warp: a load of one float each needs 4 sectors at best and 32 at worst


def limits(evidence: Evidence, watched: Evidence | None = None) -> Json:
    """Returns four shares of the row's time or of its device's ceilings, and what they say in one sentence.

    `watched`: what is known at the shape on the stage, whose sectors are shown where this shape is too large to count.
    """
    found, product = shares(evidence), _product(evidence)
    rows = [
        {"label": tr("launch overhead"), "hint": tr(OF_LAUNCH), **_share(found.get("launch"))},
        {"label": tr("memory bandwidth"), "hint": tr(OF_MEMORY), **_share(found.get("memory"))},
        _arithmetic(found, product, evidence),
        sectors(evidence, watched),
    ]
    limit = limit_of(evidence)
    for name, line in zip(NAMES, rows, strict=False):
        line["main"] = name == limit
    if product and not limit:
        rows[2]["main"] = _of_product(evidence, product) >= NEAR
    return {"title": tr("What limits it"), "rows": rows, "text": _sentence(evidence, found, limit, product)}


def _product(evidence: Evidence) -> products.Product | None:
    """Returns the fastest recorded product with which a kernel on tensor cores is compared."""
    return products.beside(evidence.row) if evidence.row and evidence.row["flops"] else None


def _of_product(evidence: Evidence, product: products.Product) -> float:
    return products.rate(evidence.timed) / product.flops_per_s


def _arithmetic(found: dict[str, float], product: products.Product | None, evidence: Evidence) -> Json:
    """Returns the share of the FP32 peak; of a kernel on tensor cores that of the fastest product in its format."""
    if product is None:
        return {"label": tr("arithmetic (FP32)"), "hint": tr(OF_ARITHMETIC), **_share(found.get("arithmetic"))}
    hint = tr(OF_PRODUCT, format=product.format, rate=product.text)
    share = _share(_of_product(evidence, product))
    return {"label": tr("arithmetic ({format})", format=product.format), "hint": hint, **share}


def shares(evidence: Evidence) -> dict[str, float]:
    """Returns the shares that are known: of the time by launches, of the copy and of the FP32 ceiling. No share of memory
    bandwidth is above 1 (visuals.charts.bandwidth)."""
    row, roof = evidence.row, evidence.roof()
    if row is None:
        return {}
    found = {}
    if overhead := bars.launch_ms(row):
        found["launch"] = overhead / row["median_ms"]
    if roof and (of_memory := bandwidth.share(row)) is not None:
        found["memory"] = of_memory
    if roof and row["flops"] and not products.row_units(row):
        found["arithmetic"] = row["flops"] / row["median_ms"] * 1e3 / roof.flops_per_s
    return found


def limiting(shares: dict[str, float]) -> str:
    """Returns which share limits the kernel, or is near: the largest ceiling, else launches; "" if none is large."""
    if not shares:
        return ""
    largest = max((name for name in shares if name != "launch"), key=shares.__getitem__, default="")
    if largest and shares[largest] >= NEAR:
        return largest
    return "launch" if shares.get("launch", 0) >= LAUNCH else ""


def limit_of(evidence: Evidence) -> str:
    """Returns the same for the kernel on the stage. It is not memory bandwidth if another kernel moves as many bytes in
    clearly less time."""
    found = shares(evidence)
    limit = limiting(found)
    if limit == "memory" and rival(evidence):
        return limiting({name: share for name, share in found.items() if name != "memory"})
    return limit


def rival(evidence: Evidence) -> Row | None:
    """Returns the fastest row that shows that memory bandwidth does not limit the kernel on the stage; None if there is none.

    It is of the same ladder, device, shape and cache mode, moves at least SAME_BYTES of the kernel's bytes, and is FASTER
    times as fast. Rows that the strip knows go before other recordings, because a reader knows their kernels.
    """
    row = evidence.row
    if row is None:
        return None
    must_move, limit_ms = SAME_BYTES * bandwidth.bytes_of(row), row["median_ms"] / FASTER
    for rows in (evidence.rows.values(), comparable(row)):
        quick = (other for other in rows if other["median_ms"] <= limit_ms)
        if found := fastest(other for other in quick if bandwidth.bytes_of(other) >= must_move):
            return found
    return None


def _share(part: float | None) -> Json:
    return {"share": None, "text": "–"} if part is None else {"share": min(part, 1.0), "text": units.share(part)}


def sectors(evidence: Evidence, watched: Evidence | None = None) -> Json:
    """Returns the sectors (32 bytes) that a load of a warp reads on average, of the 32 that it can need."""
    label = tr("sectors per load")
    totals = evidence.totals
    if totals is None and watched and watched.totals:
        counted = tr("Counted at {shape}, on the stage.", shape=watched.shape_text)
        hint = " ".join(filter(None, (counted, evidence.counting)))
        return sectors(watched) | {"label": tr("sectors, on the stage"), "hint": hint}
    if totals is None:
        return {"label": label, "share": None, "text": "–", "hint": evidence.counting}
    if not totals["requests_ld"]:
        return {"label": label, "share": None, "text": tr("none"), "hint": tr(OF_NO_LOADS)}
    per_load = totals["sectors_ld"] / totals["requests_ld"]
    hint = tr("A warp's load reads sectors of 32 bytes: 4 for 32 neighbouring floats, 32 at worst. Counted.")
    return {"label": label, "share": min(1.0, per_load / LANES), "text": units.ratio(per_load), "hint": hint}


def _sentence(evidence: Evidence, shares: dict[str, float], limit: str, product: products.Product | None) -> str:
    if evidence.row is None:
        return tr("Unknown until it is measured.")
    if limiting(shares) == "memory" and (other := rival(evidence)):
        return _not_memory(evidence, other)
    if limit:
        return tr(LIMITING[limit] if shares[limit] >= LIMIT else NEARING[limit])
    nearer_to_memory = product and _of_product(evidence, product) < shares.get("memory", 0)
    if product and not nearer_to_memory:
        return _beside_product(evidence, product)
    if not shares:
        return tr("No ceilings were measured on this device.")
    if not product and (units_of := products.row_units(evidence.row)):
        return tr("It uses {units}. The peak of {units} on this GPU was not measured.", units=tr(units_of))
    return _below(evidence, shares)


LIMITING = {
    "launch": mark("Too small to fill the GPU: launching takes much of the time."),
    "memory": mark("Memory bandwidth limits it."),
    "arithmetic": mark("Arithmetic limits it."),
}
NEARING = {
    "launch": LIMITING["launch"],
    "memory": mark("It is near the limit of memory bandwidth."),
    "arithmetic": mark("It is near the limit of arithmetic."),
}


def _not_memory(evidence: Evidence, other: Row) -> str:
    """Returns that another kernel moves as many bytes faster. It is named if it is among those of the strip."""
    fields = {"ratio": units.ratio(evidence.timed["median_ms"] / other["median_ms"])}
    if other["rung"] == evidence.rung.name:
        sizes = ", ".join(f"{name} {size}" for name, size in other["tiles"].items())
        text = tr("Memory bandwidth does not limit it: with {sizes} it is {ratio}× as fast.", sizes=sizes, **fields)
    elif other["rung"] in evidence.rows:
        name = units.quoted(evidence.ladder.rung(other["rung"]).title_on(other["engine"]))
        text = tr(
            "Memory bandwidth does not limit it: {name} moves as many bytes {ratio}× as fast.", name=name, **fields
        )
    else:
        text = tr("Memory bandwidth does not limit it: another kernel moves as many bytes {ratio}× as fast.", **fields)
    return text


def _below(evidence: Evidence, shares: dict[str, float]) -> str:
    """Returns how far a kernel is from the nearest ceiling. What a library moves and computes inside is not known."""
    if roofline.is_opaque(evidence.timed):
        return tr("Only the library knows what else it moves and computes.")
    nearest = max((name for name in CEILINGS if name in shares), key=shares.__getitem__, default="")
    if not nearest or shares[nearest] < FAR:
        return tr("It is far from every ceiling.")
    share = units.share(shares[nearest])
    return tr("It is at {share} of the nearest ceiling, {ceiling}.", share=share, ceiling=tr(CEILINGS[nearest]))


def _beside_product(evidence: Evidence, product: products.Product) -> str:
    if evidence.row is product.row:
        return tr(
            "No faster {format} product is recorded on this GPU: {rate}.", format=product.format, rate=product.text
        )
    share = units.share(_of_product(evidence, product))
    return tr(
        "It reaches {share} of the fastest {format} product recorded on this GPU ({rate}).",
        share=share,
        format=product.format,
        rate=product.text,
    )
