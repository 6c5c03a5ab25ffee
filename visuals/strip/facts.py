"""Figures of the strip as fields of sentences, so that a lesson's text never states a figure of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernels.model.program import WORKSPACE
from kernels.model.row import Row
from kernels.records.statistics import same_time, undecided
from visuals import units
from visuals.strip import limits
from visuals.strip.evidence import Evidence
from visuals.strip.times import compared

Evidences = Mapping[str, Evidence]  # by size, "stage" and "real"
OwnEvidences = Row  # of a lesson with evidence of its own kind
Facts = dict[str, str]  # fields of sentences; "" if nothing was measured
Right = Callable[[OwnEvidences], int | None]  # the index of the right answer; None if nothing was measured
FASTER, SLOWER, SAME = range(3)  # the answers to which `against` refers


def facts(evidences: Evidences) -> dict[str, str]:
    """Returns the fields that every lesson has, each with the size before it: "real_time", "stage_workspace".

    shape, time, workspace (share of all memory in use), launch, memory and arithmetic (shares as in the strip), sectors
    (per load), and for each other kernel of the ladder its time, `time_naive`, and a sentence that compares,
    `against_naive`.
    """
    found = {}
    for size, evidence in evidences.items():
        named = {**_of_kernel(evidence), **_of_others(evidence)}
        found |= {f"{size}_{name}": text for name, text in named.items()}
    return found


def short(rung: str) -> str:
    """Returns the name of a rung as a field's name has it: "gemm/shared-tile" -> "shared_tile"."""
    return rung.partition("/")[2].replace("-", "_")


def _of_kernel(evidence: Evidence) -> dict[str, str]:
    row, shares = evidence.row, limits.shares(evidence)
    found = {"shape": evidence.shape_text, "time": ""}
    if row:
        used = sum(row[f"{role}_bytes"] for role in evidence.predicted_bytes())
        found |= {"time": units.time_(row["median_ms"]), "workspace": units.share(row[f"{WORKSPACE}_bytes"] / used)}
    for name in ("launch", "memory", "arithmetic"):
        found[name] = units.share(shares[name]) if name in shares else ""
    if evidence.totals:
        found["sectors"] = limits.sectors(evidence)["text"]
    return found


def _of_others(evidence: Evidence) -> dict[str, str]:
    found = {}
    for rung, row in evidence.rows.items():
        found[f"time_{short(rung)}"] = units.time_(row["median_ms"])
        if evidence.row and row is not evidence.row:
            found[f"against_{short(rung)}"] = compared(evidence.row, row, evidence)
    return found


# -- right answers ---------------------------------------------------------------------------------
def against(rung: str, size: str, of: str = "") -> Right:
    """Returns the right answer to "is the kernel faster than this rung at this size?": FASTER, SLOWER or SAME. None if too
    few runs leave it open.

    The kernel is the rung `of`; "": that on the stage.
    """

    def right(evidences: Evidences) -> int | None:
        if not (evidence := evidences.get(size)):
            return None
        row, other = evidence.rows.get(of or evidence.rung.name), evidence.rows.get(rung)
        if not row or not other:
            return None
        if undecided(row, other):
            return None
        if same_time(row, other):
            return SAME
        return FASTER if row["median_ms"] < other["median_ms"] else SLOWER

    return right


def limited_by(size: str) -> Right:
    """Returns the right answer to "what limits it?": launch overhead, memory bandwidth, arithmetic, none of them."""

    def right(evidences: Evidences) -> int | None:
        evidence = evidences.get(size)
        if evidence is None or not limits.shares(evidence):
            return None
        return (*limits.NAMES, "").index(limits.limit_of(evidence))

    return right


def fact_is(name: str, *answers: str) -> Right:
    """Returns the right answer where each is a value of the field `name` of `facts`: "4", "32". None if none is."""

    def right(evidences: Evidences) -> int | None:
        value = facts(evidences).get(name)
        return answers.index(value) if value in answers else None

    return right


def ratio(evidence: Evidence, rung: str) -> float | None:
    """Returns the time of a rung over that of the kernel; None without both."""
    other = evidence.rows.get(rung)
    return other["median_ms"] / evidence.row["median_ms"] if other and evidence.row else None


def within(edges: tuple[float, ...], value: Callable[[Evidences], float | None]) -> Right:
    """Returns the right answer where the answers are ranges, from below the first of `edges` to above the last."""

    def right(evidences: Evidences) -> int | None:
        found = value(evidences)
        return None if found is None else sum(found >= edge for edge in edges)

    return right


# -- claims ----------------------------------------------------------------------------------------
def faster_than(size: str, *rungs: str) -> Callable[[Evidences], bool | None]:
    """Returns a check of a claim: at this size the kernel is faster than each of these rungs. None without figures."""

    def holds(evidences: Evidences) -> bool | None:
        answers = [against(rung, size)(evidences) for rung in rungs]
        return None if None in answers else all(answer == FASTER for answer in answers)

    return holds


def slower_than(size: str, rung: str) -> Callable[[Evidences], bool | None]:
    """Returns a check of a claim: at this size the kernel is slower than the rung. None without figures."""

    def holds(evidences: Evidences) -> bool | None:
        answer = against(rung, size)(evidences)
        return None if answer is None else answer == SLOWER

    return holds
