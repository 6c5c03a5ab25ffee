"""What limits the kernel on the stage: launch overhead, memory bandwidth, arithmetic and its accesses, as shares."""

from __future__ import annotations

from typing import Any

from kernels.i18n import mark, tr
from visuals import units
from visuals.charts import bars, products
from visuals.strip.evidence import Evidence

LAUNCH, ROOF = 0.2, 0.6  # shares from which launch overhead, or a ceiling, is what limits a kernel
OF_LAUNCH = mark("The share of the time that empty kernels take, as many as this one has launches.")
OF_MEMORY = mark(
    "The bytes that the kernel must move, per second, as a share of what a copy reaches on this GPU."
)
OF_ARITHMETIC = mark(
    "The operations of the kernel, per second, as a share of what FP32 arithmetic reaches on this GPU."
)
OF_PRODUCT = mark(
    "The kernel's operations per second, as a share of the fastest {format} product recorded on this GPU: {rate}. "
    "The peak of its tensor cores was not measured."
)
OF_NO_LOADS = mark("No warp loads from global memory. The copy engine (TMA) may copy from it.")
LANES = 32  # of a warp: a load of one float each needs 4 sectors at best and 32 at worst


def limits(evidence: Evidence, watched: Evidence | None = None) -> dict[str, Any]:
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
    limit = limiting(found)
    for name, line in zip(("launch", "memory", "arithmetic"), rows, strict=False):
        line["main"] = name == limit
    if product and not limit:
        rows[2]["main"] = _of_product(evidence, product) >= ROOF
    return {"title": tr("What limits it"), "rows": rows, "text": _sentence(evidence, found, limit, product)}


def _product(evidence: Evidence) -> products.Product | None:
    """Returns the fastest recorded product with which a kernel on tensor cores is compared."""
    return products.beside(evidence.row) if evidence.row and evidence.row["flops"] else None


def _of_product(evidence: Evidence, product: products.Product) -> float:
    return products.rate(evidence.row) / product.flops_per_s


def _arithmetic(
    found: dict[str, float], product: products.Product | None, evidence: Evidence
) -> dict[str, Any]:
    """Returns the share of the FP32 peak; of a kernel on tensor cores that of the fastest product in its format."""
    if product is None:
        return {
            "label": tr("arithmetic (FP32)"),
            "hint": tr(OF_ARITHMETIC),
            **_share(found.get("arithmetic")),
        }
    hint = tr(OF_PRODUCT, format=product.format, rate=product.text)
    share = _share(_of_product(evidence, product))
    return {"label": tr("arithmetic ({format})", format=product.format), "hint": hint, **share}


def shares(evidence: Evidence) -> dict[str, float]:
    """Returns the shares that are known: of the time by launches, of the copy and of the FP32 ceiling."""
    row, roof = evidence.row, evidence.roof()
    if row is None:
        return {}
    found = {}
    if overhead := bars.launch_ms(row):
        found["launch"] = overhead / row["median_ms"]
    if roof and row.get("predicted_bytes"):
        found["memory"] = row["predicted_bytes"] / row["median_ms"] * 1e3 / roof.bytes_per_s
    if roof and row["flops"] and not products.row_units(row):
        found["arithmetic"] = row["flops"] / row["median_ms"] * 1e3 / roof.flops_per_s
    return found


def limiting(shares: dict[str, float]) -> str:
    """Returns which share limits the kernel; "" if none is large."""
    if not shares:
        return ""
    largest = max((name for name in shares if name != "launch"), key=shares.__getitem__, default="")
    if largest and shares[largest] >= ROOF:
        return largest
    return "launch" if shares.get("launch", 0) >= LAUNCH else ""


def _share(part: float | None) -> dict[str, Any]:
    return (
        {"share": None, "text": "–"} if part is None else {"share": min(part, 1.0), "text": units.share(part)}
    )


def sectors(evidence: Evidence, watched: Evidence | None = None) -> dict[str, Any]:
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


def _sentence(
    evidence: Evidence, shares: dict[str, float], limit: str, product: products.Product | None
) -> str:
    if evidence.row is None:
        return tr("Unknown until it is measured.")
    if limit == "launch":
        return tr("Too small to fill the GPU: launching takes much of the time.")
    if limit == "memory" and shares["memory"] > 1:
        return tr("It moves bytes faster than memory allows: a part stays in the caches.")
    if limit == "memory":
        return tr("Memory bandwidth limits it.")
    if limit == "arithmetic":
        return tr("Arithmetic limits it.")
    nearer_to_memory = product and _of_product(evidence, product) < shares.get("memory", 0)
    if product and not nearer_to_memory:
        return _beside_product(evidence, product)
    if not shares:
        return tr("No ceilings were measured on this device.")
    if not product and (units_of := products.row_units(evidence.row)):
        return tr("It uses {units}. The peak of {units} on this GPU was not measured.", units=tr(units_of))
    return tr("It is far from every ceiling.")


def _beside_product(evidence: Evidence, product: products.Product) -> str:
    if evidence.row is product.row:
        return tr(
            "No faster {format} product is recorded on this GPU: {rate}.",
            format=product.format,
            rate=product.text,
        )
    share = units.share(_of_product(evidence, product))
    return tr(
        "It reaches {share} of the fastest {format} product recorded on this GPU ({rate}).",
        share=share, format=product.format, rate=product.text,
    )  # fmt: skip
