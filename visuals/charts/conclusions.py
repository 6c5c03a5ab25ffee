"""The sentence with which each card begins, computed from the rows of its chart. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.i18n import mark, tr
from kernels.model.row import Row
from kernels.records.statistics import same_time, within_ratio
from visuals import units
from visuals.charts import bars
from visuals.charts.roofline import Roof
from visuals.charts.sweeps import Line, named_lines, rate
from visuals.units import named

NEARLY = 1.005  # a ratio below is written as 1
Titled = Sequence[tuple[str, Row]]


def of_times(titled: Titled) -> str:
    """Returns which kernel is fastest and by how much."""
    (title, row), *others = sorted(titled, key=lambda pair: pair[1]["median_ms"])
    fields = {"first": named(title, first=True), "time": units.time_(row["median_ms"])}
    if not others:
        return tr("{first} takes {time}.", **fields)
    (next_title, next_row), (last_title, last_row) = others[0], others[-1]
    fields |= {
        "next": named(next_title),
        "next_ratio": _times(next_row, row),
        "last": named(last_title),
        "last_ratio": _times(last_row, row),
    }
    if same_time(row, next_row):
        why = tr("within 5 %") if within_ratio(row, next_row) else tr("their spreads overlap")
        if len(others) == 1:
            return tr("{first} and {next} take the same time, {time}: {why}.", why=why, **fields)
        return tr(
            "{first} and {next} are fastest: {time}, {why}. The slowest, {last}, takes {last_ratio}× the time.",
            why=why,
            **fields,
        )
    if len(others) == 1:
        fields["next"] = named(next_title, first=True)
        return tr("{first} is fastest: {time}. {next} takes {next_ratio}× the time.", **fields)
    return tr(
        "{first} is fastest: {time}. The next, {next}, takes {next_ratio}× the time, the slowest, {last}, {last_ratio}×.",
        **fields,
    )


def _times(row: Row, other: Row) -> str:
    return units.ratio(row["median_ms"] / other["median_ms"])


def of_memory(titled: Titled) -> str:
    """Returns how much memory the kernels allocate, and which part of it is largest."""
    least_title, least = min(titled, key=lambda pair: pair[1]["peak_bytes"])
    most_title, most = max(titled, key=lambda pair: pair[1]["peak_bytes"])
    role, name = max(bars.roles(most), key=lambda pair: most[f"{pair[0]}_bytes"])
    fields = {
        "n": len(titled),
        "most": named(most_title, first=True),
        "least": named(least_title),
        "peak": units.bytes_(most["peak_bytes"]),
        "least_peak": units.bytes_(least["peak_bytes"]),
        "part": name,
        "bytes": units.bytes_(most[f"{role}_bytes"]),
    }
    if len(titled) == 1:
        return tr("{most} allocates {peak}. The largest part: {part}, {bytes}.", **fields)
    if most["peak_bytes"] < NEARLY * least["peak_bytes"]:
        return tr("All {n} kernels allocate {peak}. The largest part: {part}, {bytes}.", **fields)
    return tr(
        "{most} allocates most: {peak}, {ratio}× as much as {least}. The largest part: {part}, {bytes}.",
        ratio=units.ratio(most["peak_bytes"] / least["peak_bytes"]),
        **fields,
    )


def of_rates(titled: Titled, library: Row | None) -> str:
    """Returns which kernel has the highest rate, and its share of the library's."""
    title, row = max(titled, key=lambda pair: rate(pair[1]))
    fields = {"title": named(title, first=True), "rate": units.rate(row["flops"], row["median_ms"])}
    if library is None:
        return tr("{title} is fastest: {rate}.", **fields)
    name = next((name for name, other in titled if other is library), "")
    if row is library:
        own = [pair for pair in titled if pair[1] is not library]
        if not own:
            return tr("{title} is fastest: {rate}.", **fields)
        other_title, other = max(own, key=lambda pair: rate(pair[1]))
        share = units.share(rate(other) / rate(library))
        return tr(
            "{title} is fastest: {rate}. The next, {other}, reaches {share} of that.",
            other=named(other_title),
            share=share,
            **fields,
        )
    return tr(
        "{title} is fastest: {rate}, {share} of the speed of {library}.",
        share=units.share(rate(row) / rate(library)),
        library=named(name),
        **fields,
    )


def of_sizes(lines: Sequence[Line]) -> str:
    """Returns the fastest kernel at the largest size, and the fastest kernel that no library provides."""
    points = dict(lines)
    largest = max(size for _, of in lines for size, _ in of)
    by_role = {role: title for title, role in named_lines(lines).items()}
    at_end = {title: of[-1][1] for title, of in lines if of[-1][0] == largest}
    title = max(at_end, key=lambda title: rate(at_end[title]))
    fields = {"size": units.whole(largest), "title": named(title), "rate": _rate(at_end[title])}
    ours = by_role.get("input", title)
    if ours == title:
        return tr("At size {size}, {title} is fastest: {rate}.", **fields)
    return tr(
        "At size {size}, {title} is fastest: {rate}. Our fastest kernel is {ours}: {our_rate}.",
        ours=named(ours),
        our_rate=_rate(points[ours][-1][1]),
        **fields,
    )


def _rate(row: Row) -> str:
    return units.rate(row["flops"], row["median_ms"])


REQUESTED = (
    mark("{most} requests {bytes} from global memory."),
    mark("All {n} kernels request {bytes} from global memory."),
    mark("{most} requests {bytes} from global memory, {ratio}× as much as {least} ({least_bytes})."),
)
MOVED = (
    mark("{most} moves at least {bytes} through memory."),
    mark("All {n} kernels move at least {bytes} through memory."),
    mark("{most} moves at least {bytes} through memory, {ratio}× as much as {least} ({least_bytes})."),
)


def of_traffic(titled: Sequence[tuple[str, int]], messages: tuple[str, str, str]) -> str:
    """Returns which kernel of (title, bytes) has the fewest bytes and which the most. `messages`: REQUESTED if the bytes are
    counted requests; MOVED if they are predicted: those that must move (visuals.charts.bandwidth)."""
    least_title, least = min(titled, key=lambda pair: pair[1])
    most_title, most = max(titled, key=lambda pair: pair[1])
    one, same, different = messages
    return tr(
        one if len(titled) == 1 else same if least == most else different,
        n=len(titled),
        least=named(least_title),
        most=named(most_title, first=True),
        least_bytes=units.bytes_(least),
        bytes=units.bytes_(most),
        ratio=units.ratio(most / least) if least else "",
    )


def of_limit(intensities: Sequence[float], roof: Roof, fp32: bool = True) -> str:
    """Returns what limits kernels with these FLOP/byte on a device; "" if it is not the same for all of them. `fp32`: whether
    all of them use the FP32 units of the roof. The peak of others is higher, but not known."""
    low, high = min(intensities), max(intensities)
    fields = {"intensity": units.ratio(low), "ridge": units.ratio(roof.ridge), "device": roof.device}
    if low > roof.ridge and fp32:
        return tr(
            "The roof over them is arithmetic: {intensity} FLOP/byte or more, above {ridge} on {device}.", **fields
        )
    if high < roof.ridge:
        fields["intensity"] = units.ratio(high)
        return tr(
            "The roof over them is memory bandwidth: {intensity} FLOP/byte or less, below {ridge} on {device}.",
            **fields,
        )
    return ""
