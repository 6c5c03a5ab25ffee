"""What the page says of a collective: recorded times if there are any, else predictions with their badge; chart and strip."""

from __future__ import annotations

import json

import pytest

from kernels.collectives import recorded
from kernels.collectives.shape import ALGORITHMS, ALL_REDUCE, ALL_TO_ALL, RING, CollectiveShape
from visuals.collectives import charts, strip
from visuals.collectives.evidence import SIZES, CollectiveEvidence, crossover, facts, length
from visuals.palette import LIGHT
from visuals.strip.strip import Run

NBYTES = 64 << 20
SHAPE = CollectiveShape(ALL_REDUCE, RING, 2, NBYTES // 4)


def row(algorithm: str, nbytes: int, ms: float, **more) -> dict:
    return {
        "kind": ALL_REDUCE,
        "algorithm": algorithm,
        "ranks": 2,
        "elements": nbytes // 4,
        "bytes": nbytes,
        "launch": "launch",
        "median_ms": ms,
        "p20_ms": 0.9 * ms,
        "p80_ms": 1.1 * ms,
        "n": 9,
        "bus_bytes_per_s": 1,
        **more,
    }


@pytest.fixture
def records(monkeypatch, tmp_path):
    """Returns a function that writes rows in the place of the recorded ones."""

    def write(*rows: dict) -> None:
        file = tmp_path / "collectives.json"
        file.write_text(
            json.dumps([{"device": "NVIDIA H200", "date": "2026-11-25", "machine": {"ranks": 2}, "rows": rows}])
        )
        monkeypatch.setattr(recorded, "FILE", file)
        recorded.reset()

    yield write
    monkeypatch.undo()
    recorded.reset()


def curve(algorithm: str, latency_ms: float, bytes_per_ms: float) -> list[dict]:
    return [row(algorithm, n, latency_ms + n / bytes_per_ms) for n in SIZES.values()]


def time_of(evidence: CollectiveEvidence) -> dict:
    return strip.strip({"stage": evidence}, "stage", Run())["sizes"][0]["time"]


def test_without_a_record_the_time_is_predicted_and_says_so(records):
    records()
    found = time_of(CollectiveEvidence(SHAPE))
    assert found["badge"]["kind"] == "predicted" and "Not recorded yet" in found["text"]
    assert all("predicted" in bar["text"] for bar in found["bars"])
    assert "No time of this many GPUs is recorded yet" in charts.accuracy_text(charts.accuracy(ALL_REDUCE, 2))


def test_the_two_seen_times_are_predicted():
    for nbytes, seconds in recorded.SEEN:
        link = recorded.seen().link
        from kernels.collectives import cost

        assert cost.seconds(recorded.traffic(ALL_REDUCE, "nccl", 2, nbytes), link) == pytest.approx(seconds)


def test_a_record_is_shown_with_its_device_and_against_nccl(records):
    records(row(RING, NBYTES, 0.25), row("nccl", NBYTES, 0.2), row(RING, NBYTES, 0.3, launch="graph"))
    found = time_of(CollectiveEvidence(SHAPE))
    assert found["value"] == "250 µs" and found["badge"]["kind"] == "recorded" and "2 × H200" in found["badge"]["text"]
    assert found["text"] == "0.8× the speed of NCCL."
    kinds = {bar["title"]: "predicted" in bar["text"] for bar in found["bars"]}
    assert kinds == {
        "through one GPU": True,
        "ring": False,
        "tree": True,
        "one-shot": True,
        "two-shot": True,
        "NCCL": False,
    }


def test_a_time_measured_here_comes_before_a_record(records):
    records(row(RING, NBYTES, 0.25))
    evidence = CollectiveEvidence(SHAPE, {RING: row(RING, NBYTES, 0.5, device="NVIDIA Pretence")})
    found = time_of(evidence)
    assert found["value"] == "500 µs" and found["badge"]["kind"] == "measured"


def test_recorded_curves_fit_the_model_and_predict_other_numbers_of_gpus(records):
    records(*curve(RING, 0.02, 3e8), *curve("one-shot", 0.008, 2e8))
    assert recorded.fitted(ALL_REDUCE, RING, 2).worst < 0.01
    link, device = recorded.link(ALL_REDUCE, RING, 8)
    assert device == "2 × NVIDIA H200" and link == recorded.fitted(ALL_REDUCE, RING, 2).link
    known = charts.accuracy(ALL_REDUCE, 2)
    assert [name for name, _, _ in known] == [RING, "one-shot"]
    assert charts.accuracy_text(known).startswith("2 of 2 algorithms are predicted within 15 %")
    figure = charts.model(ALL_REDUCE, 2, RING, LIGHT).to_dict()
    points = [trace for trace in figure["data"] if trace["mode"] == "markers"]
    assert len(points) == 2 and len(points[0]["x"]) == len(SIZES)


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_the_chart_has_a_line_for_each_algorithm(kind):
    from plotly.graph_objects import Figure

    figure = charts.model(kind, 4, ALGORITHMS[kind][0], LIGHT)
    checked = Figure(figure.to_dict())  # Plotly's checks of every property
    assert sum(trace.mode == "lines" for trace in checked.data) == len(ALGORITHMS[kind]) + 1


def test_bytes_of_the_port_and_the_least():
    ring = CollectiveEvidence(CollectiveShape(ALL_REDUCE, RING, 4, 1024))
    assert ring.port_bytes == ring.least_bytes == 1.5 * 4096
    naive = CollectiveEvidence(CollectiveShape(ALL_REDUCE, "naive", 4, 1024))
    parts = strip.ports(naive)["parts"]
    assert naive.port_bytes == 6 * 4096 and sum(part["share"] for part in parts) == pytest.approx(1)
    assert "No algorithm needs less" in strip.ports(ring)["text"] and "No algorithm" not in strip.ports(naive)["text"]


def test_shares_of_latency_and_transfer():
    small, large = (CollectiveEvidence(CollectiveShape(ranks=4, elements=n)) for n in (64, 2**28))
    assert small.shares[0] > 0.99 and large.shares[1] > 0.95
    assert sum(large.shares) == pytest.approx(1)
    assert strip.limits(small)["text"] == "Fewer rounds would help."
    assert strip.limits(large)["text"] == "Fewer bytes would help."


def test_facts_are_texts_and_lengths_have_names():
    found = facts(CollectiveEvidence(CollectiveShape(ALL_TO_ALL, "direct", 4, 16)))
    assert all(isinstance(text, str) and text for text in found.values())
    assert length(64 << 10) == "64 KiB" and length(64) == "64 B"
    assert crossover("one-shot", RING, 8, ALL_REDUCE) in SIZES


def test_the_table_has_every_collective():
    table = charts.kinds(4, NBYTES)
    assert table.count("<tr>") == 1 + sum(map(len, ALGORITHMS.values()))


def test_the_ring_is_faster_from_the_crossover_on_and_not_before():
    name = crossover("one-shot", "ring", 4, ALL_REDUCE)
    lengths = list(SIZES)
    for faster, slower, at in (("ring", "one-shot", name), ("one-shot", "ring", lengths[lengths.index(name) - 1])):
        ms = [recorded.predicted_ms(ALL_REDUCE, each, 4, SIZES[at]) for each in (faster, slower)]
        assert ms == sorted(ms)
