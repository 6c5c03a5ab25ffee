"""What the strip says of limits and of the fastest kernel holds against every recorded row. Each test lists the rows that
contradict it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from kernels.ladders import LADDERS, find
from kernels.records import files
from visuals.charts import bandwidth
from visuals.strip import limits, times
from visuals.strip.evidence import Evidence

Row = Mapping[str, Any]
Group = list[Row]  # the rows of one ladder at one shape, in one cache mode, on one device
FASTER, LIMIT = 1.2, 0.8
MEMORY, NEAR_MEMORY = (table["memory"] for table in (limits.LIMITING, limits.NEARING))


@cache
def groups() -> list[Group]:
    found: dict[tuple, Group] = defaultdict(list)
    for _, row in files.read():
        ladder = row["rung"].partition("/")[0]
        params = LADDERS[ladder].later_fields | row["shape"]
        found[ladder, tuple(sorted(params.items())), row["mode"], row["device"]].append(row)
    return list(found.values())


def evidence(row: Row, *others: Row) -> Evidence:
    """Returns what a page knows that shows a row beside these others."""
    ladder, rung = LADDERS[row["rung"].partition("/")[0]], find(row["rung"])
    rows = {other["rung"]: other for other in (*others, row)}
    return Evidence(ladder, rung, ladder.shape(**row["shape"]), "", row["tiles"], rows)


def raw_share(row: Row) -> float:
    rate = row["ceilings"]["copy_bytes_per_s"]
    return bandwidth.bytes_of(row, row["mode"] == "hot") / row["median_ms"] * 1e3 / rate


def with_bytes() -> Iterator[tuple[Row, Group]]:
    """Yields each row whose bytes and ceilings are known, and the rows of its group."""
    for group in groups():
        for row in group:
            if row.get("ceilings") and row.get("predicted_bytes"):
                yield row, group


def offender(row: Row, *more: Any) -> tuple:
    return row["rung"], tuple(row["shape"].values()), tuple(row["tiles"].items()), row["mode"], *more


def test_no_kernel_moves_its_bytes_faster_than_a_copy() -> None:
    """Hot caches hold a part of a buffer that does not fit. Of cold ones a copy is the ceiling, to its last digit."""
    most = {"cold": 1.001, "hot": 1.05}
    over = [offender(row, raw_share(row)) for row, _ in with_bytes() if raw_share(row) > most[row["mode"]]]
    assert not over
    assert all(bandwidth.share(row) <= 1 for row, _ in with_bytes())


def test_memory_bandwidth_limits_no_kernel_that_another_one_disproves() -> None:
    false, said = [], 0
    for row, group in with_bytes():
        if raw_share(row) < limits.NEAR:
            continue  # the strip names another limit, or none
        text = limits.limits(evidence(row))["text"]
        if text not in (MEMORY, NEAR_MEMORY):
            continue
        said += 1
        moved, quick_ms = bandwidth.bytes_of(row), row["median_ms"] / FASTER
        quicker = [r for r in group if r["median_ms"] <= quick_ms and bandwidth.bytes_of(r) >= moved]
        false += [offender(row, text, other["rung"]) for other in quicker]
        false += [offender(row, text)] * ((text == MEMORY) != (bandwidth.share(row) >= LIMIT))
    assert not false
    assert said > 100


def test_far_from_every_ceiling_is_far_from_every_ceiling() -> None:
    false = []
    for row, _ in with_bytes():
        known = evidence(row)
        shares = limits.shares(known)
        highest = max((share for name, share in shares.items() if name != "launch"), default=0)
        if highest >= limits.FAR and limits.limits(known)["text"] == "It is far from every ceiling.":
            false.append(offender(row, shares))
    assert not false


def test_no_kernel_is_tagged_our_fastest_beside_a_faster_one_of_ours() -> None:
    """A lesson shows a part of a ladder: here the two slowest kernels of ours, then all."""
    false, said = [], 0
    for group in groups():
        ours = [row for row in group if not find(row["rung"]).library]
        slowest = sorted({row["rung"]: row for row in ours}.values(), key=lambda row: -row["median_ms"])
        for shown in (slowest[:2], slowest):
            if len(shown) < 2:
                continue
            tags = times._tags(evidence(*shown))
            (tagged,) = (row for row in shown if row["rung"] in tags)
            said += tags[tagged["rung"]] == "our fastest"
            faster = [r for r in ours if r["rung"] != tagged["rung"] and r["median_ms"] < tagged["median_ms"]]
            if faster and tags[tagged["rung"]] == "our fastest":
                false.append(offender(tagged, min(faster, key=lambda row: row["median_ms"])["rung"]))
    assert not false
    assert said > 100
