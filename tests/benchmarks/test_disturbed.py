"""The table of disturbed times: errors against the runs that no other program could disturb, by the readings."""

from __future__ import annotations

from benchmarks.disturbed import FIFO, table, with_errors


def run(priority, median_ms: float, waited: float) -> dict:
    return {"case": "a", "priority": priority, "median_ms": median_ms, "waited": waited}


def test_errors_are_against_the_undisturbed_median_and_lines_are_by_the_share_that_waited():
    runs = with_errors([run(FIFO, 1.0, 0.0), run(FIFO, 1.0, 0.0), run(0, 1.01, 0.02), run(0, 3.0, 0.6)])
    assert [round(r["error"], 3) for r in runs] == [0, 0, 0.01, 2]
    lines = table(runs).splitlines()
    assert "| under SCHED_FIFO | 2 | +0.0 % | +0.0 % | 0 % |" in lines
    assert "| waited in 0.1 to 5 % of the samples | 1 | +1.0 % | +1.0 % | 0 % |" in lines
    assert "| waited in 5 to 10 % of the samples | 0 | – | – | – |" in lines
    assert lines[-2].startswith("| not marked | 3 |") and lines[-1] == "| marked | 1 | +200.0 % | +200.0 % | 100 % |"
