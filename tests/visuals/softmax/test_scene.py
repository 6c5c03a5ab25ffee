"""The scene of softmax: its cells equal the kernel's output and its stores in shared memory; m and l are correct."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import emulator
from kernels.engines.emulator.launch import Options
from kernels.ladders import find
from kernels.softmax import ladder as softmax_ladder
from kernels.softmax.presets import SOFTMAX_PRESETS
from kernels.softmax.shape import SoftmaxShape
from pages.parts.rung_address import Selection
from pages.softmax import address as softmax_address
from tests.helpers.offenders import every
from visuals.scene.payload import payload
from visuals.softmax import inputs as softmax_inputs
from visuals.softmax import notes as softmax_notes
from visuals.softmax.runs import run_rung
from visuals.softmax.scene import MAX_COLUMNS, softmax_scene

SMALL = {
    "softmax/unsafe": {"BLOCK": 8},
    "softmax/three-pass": {"BLOCK": 8},
    "softmax/online": {"BLOCK": 8},
    "softmax/warp-shuffle": {"WARPS": 1},
    "softmax/registers": {"BLOCK": 128, "PER": 4},
    "softmax/cluster": {"CLUSTER": 2, "BLOCK": 32, "PER": 4},
    "softmax/split": {"BLOCKS": 4, "BLOCK": 32, "LOADS": 1},
    "softmax/one-launch": {"BLOCKS": 4, "BLOCK": 32, "PER": 4},
}
UNSAFE = {"softmax/unsafe": SMALL["softmax/unsafe"]}
SEVERAL_BLOCKS = ("softmax/cluster", "softmax/split", "softmax/one-launch")
ONE_BLOCK = [rung for rung in SMALL if rung not in SEVERAL_BLOCKS]
LOGITS = [name for name in softmax_inputs.LOGITS if name != softmax_inputs.OWN_NUMBERS]
numbers = st.one_of(
    st.floats(-8, 8, width=32), st.floats(-300, 300, width=32), st.sampled_from([-np.inf, np.inf, np.nan, 0.0])
)
rows = st.lists(numbers, min_size=1, max_size=70).map(partial(np.array, dtype=np.float32))
QUIET = dict.fromkeys(("over", "invalid", "divide"), "ignore")


def emulated(rung: str, x: np.ndarray, trace: int | None = None):
    program = find(rung).build(SoftmaxShape(1, x.size), SMALL[rung])
    session = emulator.open(program, {"x": x[None]}, trace)
    with np.errstate(**QUIET):
        return session.verify_run().ravel(), session


def merged(x: np.ndarray) -> tuple[float, float]:
    """Returns m and l of numbers, in float64."""
    if not x.size:
        return -np.inf, 0.0
    m = np.fmax.reduce(x)
    with np.errstate(**QUIET):
        return float(m), float(np.exp(x.astype("f8") - (0 if m == -np.inf else m)).sum())


# -- cells -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", SMALL)
@settings(max_examples=4)
@given(x=rows)
def test_last_step_equals_the_kernels_output(rung, x):
    scene = softmax_scene(rung, SMALL[rung], x)
    out, session = emulated(rung, x)
    np.testing.assert_array_equal(scene.cells("y"), out)
    np.testing.assert_array_equal(scene.cells("x"), x)
    readings = {r.label: r.values for r in scene.readings}
    result = run_rung(rung, tuple(SMALL[rung].items()), x.tobytes())
    assert readings["bytes of x read"][-1] == result.moved("ld") <= session.counters.total["bytes_ld"]
    assert readings["bytes of y written"][-1] == result.moved("st") <= session.counters.total["bytes_st"]
    if rung not in ("softmax/split", "softmax/one-launch"):  # they also move parts
        assert result.moved("ld") == session.counters.total["bytes_ld"]
    assert readings["passes over x"][-1] == softmax_ladder.reads(rung)


@pytest.mark.parametrize("rung", ["softmax/online", "softmax/warp-shuffle", "softmax/three-pass"])
@settings(max_examples=6)
@given(x=st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=70))
def test_m_and_l_equal_those_of_the_numbers_read_so_far(rung, x):
    x = np.array(x, np.float32)
    scene = softmax_scene(rung, SMALL[rung], x)
    readings = {r.label: r.values for r in scene.readings}
    for t, read in enumerate(readings["bytes of x read"] // 4):
        count = min(int(read), x.size)
        m, l = merged(x[:count])  # noqa: E741
        if rung.endswith("three-pass"):  # m in the first pass, l in the second
            assert readings["m so far"][t] == m
            again = x[: min(max(0, int(read) - x.size), x.size)].astype("f8")
            assert readings["l so far"][t] == pytest.approx(np.exp(again - x.max()).sum(), rel=1e-5)
        else:
            assert readings["m so far"][t] == m
            assert readings["l so far"][t] == pytest.approx(l, rel=1e-5)


@pytest.mark.parametrize("rung", ONE_BLOCK)
@settings(max_examples=3)
@given(x=rows)
def test_shared_memory_equals_the_kernels_stores(rung, x):
    """Every value that a thread stored there, in the same order and cells."""
    scene = softmax_scene(rung, SMALL[rung], x)
    _, session = emulated(rung, x, 0)
    (trace,) = session.trace
    names = np.array(trace.buffers)[trace.buffer]
    written = {w.target: w for w in scene.writes if w.target in ("partial_m", "partial_l", "warp_m", "warp_l")}
    assert bool(written) == (rung != "softmax/warp-shuffle")
    for buffer in {*trace.buffers} - {"x", "y"}:
        stored = trace.write & (names == buffer)
        buffer_writes = [
            written[name]
            for name in (("partial_m", "partial_l") if buffer == "partial" else (buffer,))
            if name in written
        ]
        cells = np.concatenate([w.cells % scene.tensor(w.target).cols for w in buffer_writes])
        np.testing.assert_array_equal(cells, trace.element[stored])
        values = np.concatenate([w.values for w in buffer_writes])
        np.testing.assert_array_equal(values, trace.value[stored])


@pytest.mark.parametrize("rung", SEVERAL_BLOCKS)
@pytest.mark.parametrize(("n", "order"), [(31, "forward"), (75, "reversed")])
def test_each_blocks_shared_memory_equals_its_stores(rung, n, order):
    """m and l of each warp, of all blocks: the trace is of one block at a time."""
    x = softmax_inputs.row(softmax_inputs.SMALL, n)
    scene = softmax_scene(rung, SMALL[rung], x)
    for block in range(scene.tensor("warp_m").rows):
        program = find(rung).build(SoftmaxShape(1, n), SMALL[rung])
        session = emulator.Session(program, {"x": x[None]}, Options(order=order).tracing(block))
        session.verify_run()
        trace = session.trace[0]
        stored = trace.write & (np.array(trace.buffers)[trace.buffer] == "of_warp")
        for name, values in (("warp_m", trace.value[stored][::2]), ("warp_l", trace.value[stored][1::2])):
            cols = scene.tensor(name).cols
            own = scene.cells(name)[block * cols : (block + 1) * cols]
            np.testing.assert_array_equal(own, values)


@pytest.mark.parametrize("rung", SEVERAL_BLOCKS)
@pytest.mark.parametrize("n", [1, 130])
def test_m_and_l_so_far_are_those_of_the_row_once_it_is_read(rung, n):
    x = softmax_inputs.row(softmax_inputs.SMALL, n)
    scene = softmax_scene(rung, SMALL[rung], x)
    readings = {r.label: r.values for r in scene.readings}
    m, l = merged(x)  # noqa: E741
    read = np.flatnonzero(readings["bytes of x read"] >= x.nbytes)
    first = read[0] + (0 if rung == "softmax/split" else 2)  # maxima, then exponentials
    np.testing.assert_array_equal(readings["m so far"][first:], np.float32(m))
    np.testing.assert_allclose(readings["l so far"][first:], l, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 75])
def test_parts_of_a_row_equal_what_the_first_launch_stores(n):
    x = softmax_inputs.row(softmax_inputs.SMALL, n)
    scene = softmax_scene("softmax/split", SMALL["softmax/split"], x)
    program = find("softmax/split").build(SoftmaxShape(1, n), SMALL["softmax/split"])
    session = emulator.open(program, {"x": x[None]}, None)
    session.verify_run()
    for name in ("part_m", "part_l"):
        np.testing.assert_array_equal(scene.cells(name), session.fetch(name).ravel())
    assert [s.file for s in (scene.source, *scene.next_sources)] == ["07_split_parts.cu", "08_split_finish.cu"]


@pytest.mark.parametrize("rung", ONE_BLOCK)
@pytest.mark.parametrize("name", LOGITS)
def test_last_m_and_l_give_the_results(rung, name):
    """y = exp(x - m) / l with the m and l that every thread ends with."""
    x = softmax_inputs.row(name, 40)
    scene = softmax_scene(rung, SMALL[rung], x)
    threads = scene.tensor("l").cols
    with np.errstate(**QUIET):
        m = scene.cells("m").reshape(-1, threads)[-1, 0] if rung != "softmax/unsafe" else np.float32(0)
        y = np.exp(x - m) / scene.cells("l").reshape(-1, threads)[-1, 0]
    np.testing.assert_allclose(scene.cells("y"), y, rtol=2e-6, atol=1e-30)


def test_only_the_unsafe_kernel_has_infinity_and_nan():
    x = softmax_inputs.row(softmax_inputs.LARGE, 40)
    unsafe = softmax_scene("softmax/unsafe", SMALL["softmax/unsafe"], x)
    y = unsafe.cells("y")
    assert np.isinf(unsafe.cells("partial_l")).any() and np.isnan(y).sum() == (x > softmax_notes.OVERFLOW).sum() > 2
    captions = [unsafe.caption(t) for t in range(unsafe.steps)]
    assert any("beyond 3.4·10^38" in text for text in captions) and any("∞ / ∞ is NaN" in text for text in captions)
    for rung in SMALL:
        if rung != "softmax/unsafe":
            scene = softmax_scene(rung, SMALL[rung], x)
            assert np.isfinite(scene.cells("y")).all() and scene.cells("y").sum() == pytest.approx(1)


@pytest.mark.parametrize("rung", ["softmax/three-pass", "softmax/online", "softmax/warp-shuffle"])
def test_a_caption_of_a_result_names_m_as_m_and_l_as_l(rung):
    scene = softmax_scene(rung, SMALL[rung], softmax_inputs.row(softmax_inputs.SMALL, 40))
    last, readings = scene.steps - 1, {r.label: r.values for r in scene.readings}
    template = scene.captions.templates[scene.captions.kind[last]]
    named = {name: scene.captions.args[last][int(at)] for name, at in re.findall(r"\b([ml]) = \{(\d+)\}", template)}
    assert named == {name: pytest.approx(readings[f"{name} so far"][last]) for name in "ml"}


def test_a_sum_that_was_infinite_before_does_not_overflow_again():
    """Thread 0 of 8 adds a small number after an infinite one: the caption says that the sum stays ∞."""
    x = np.zeros(24, np.float32)
    x[0], x[8], x[16] = 100, 3, np.nan
    scene = softmax_scene("softmax/unsafe", SMALL["softmax/unsafe"], x)
    captions = [scene.caption(t) for t in range(3)]
    assert "exp(100) is beyond 3.4·10^38" in captions[0]
    assert "adds exp(3) = 20.09. Its sum was not finite before, so l stays ∞." in captions[1]
    assert "Thread 0 reads NaN. Its sum l is NaN" in captions[2]


# -- steps -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rung", "passes", "middle"),
    [("softmax/unsafe", 2, 5), ("softmax/three-pass", 3, 10), ("softmax/online", 2, 5), ("softmax/warp-shuffle", 2, 5)],
)
def test_number_of_iterations_levels_and_exchanges(rung, passes, middle):
    """Each pass has one iteration per part of the row. A tree of 8 threads: store, 3 levels, root. A butterfly: 5
    exchanges."""
    n = 40
    scene = softmax_scene(rung, SMALL[rung], softmax_inputs.row(softmax_inputs.SMALL, n))
    iterations = -(-n // scene.tensor("l").cols)
    assert scene.steps == passes * iterations + middle


@pytest.mark.parametrize("rung", ["softmax/unsafe", "softmax/three-pass", "softmax/online"])
def test_a_level_of_a_tree_names_the_thread_whose_value_is_added(rung):
    scene = softmax_scene(rung, SMALL[rung], softmax_inputs.row(softmax_inputs.SMALL, 40))
    levels = [scene.caption(t) for t in range(scene.steps) if " threads work, " in scene.caption(t)]
    assert levels
    for text in levels:  # the threads that work add those of the upper half
        assert f"thread t + {text.partition(' ')[0]}" in text


@pytest.mark.parametrize("rung", SMALL)
@settings(max_examples=3)
@given(x=rows)
def test_every_step_has_a_caption_and_a_line_and_a_small_payload(rung, x):
    scene = softmax_scene(rung, SMALL[rung], x)
    for t in range(scene.steps):
        source = [s for s in (scene.source, *scene.next_sources) if s.since <= t][-1]
        assert "{" not in scene.caption(t) and len(scene.caption(t)) < 330
        assert not t or scene.caption(t) != scene.caption(t - 1)
        assert source.text.splitlines()[int(source.lines[t - source.since]) - source.first].strip()
    meta, block = payload(scene)
    assert len(block) < 100_000 and meta["steps"] == scene.steps


@pytest.mark.parametrize("rung", ONE_BLOCK)
def test_notes_name_the_two_values_that_were_merged(rung):
    tiles = SMALL[rung] | ({"BLOCK": 32} if "PER" in SMALL[rung] else {})
    scene = softmax_scene(rung, tiles, softmax_inputs.row(softmax_inputs.SMALL, 40))
    assert scene.annotations
    for annotation in scene.annotations:
        cells, said = scene.cells(annotation.tensor), annotation.captions
        for cell in np.flatnonzero([bool(said.templates[kind]) for kind in said.kind]):
            a, b = (np.float32(number) for number in said.args[cell][:2])
            linked = [at for source in annotation.links.values() for at in source[cell] if at >= 0]
            assert linked and all(annotation.links)
            if annotation.tensor in ("partial_m", "m"):
                assert cells[cell] == max(a, b)
            elif "rescaled" not in said.templates[said.kind[cell]]:
                assert cells[cell] == a + b


@pytest.mark.parametrize("key", ["softmax-toy", "softmax-attention", "softmax-long"])
@pytest.mark.parametrize("rung", softmax_address.ADDRESS.rungs.values(), ids=lambda r: r.name)
def test_every_preset_has_a_scene_or_breaks_a_rule(rung, key):
    shape = SOFTMAX_PRESETS[key].shape
    tiles = softmax_address.default_tiles_for(rung, shape)
    rung_settings = Selection(rung, tiles, shape)
    scene, instead = softmax_address.scene(rung_settings, softmax_address.row(shape, softmax_inputs.SMALL))
    assert not instead
    if rung_settings.broken:
        too_long = ("registers" in rung.name or "cluster" in rung.name) and shape.N > 8192
        assert scene is None and (too_long or (rung.name == "softmax/one-launch" and shape.M > 528))
        return
    assert scene.tensor("x").size == min(shape.N, MAX_COLUMNS)
    assert ("its first" in scene.tensor("x").note) == (shape.N > MAX_COLUMNS)
    if "BLOCK" in tiles and "PER" not in tiles and "BLOCKS" not in tiles:
        assert shape.N // tiles["BLOCK"] >= softmax_address.MIN_ITERATIONS or tiles["BLOCK"] == 4
    assert len(payload(scene)[1]) < 400_000


# -- rows --------------------------------------------------------------------------------------------
def test_rows_match_their_descriptions():
    for n in (1, 2, 40, 1000):
        rows_by_name = {name: softmax_inputs.row(name, n) for name in LOGITS}
        assert all(x.shape == (n,) and x.dtype == np.float32 for x in rows_by_name.values())
        assert (
            np.abs(rows_by_name[softmax_inputs.SMALL]).max() <= 5
            and (rows_by_name[softmax_inputs.LARGE] > softmax_notes.OVERFLOW).any()
        )
        assert np.ptp(rows_by_name[softmax_inputs.EQUAL]) == 0 and (rows_by_name[softmax_inputs.ONE_HOT] > 0).sum() == 1
        assert np.isneginf(rows_by_name[softmax_inputs.MASKED]).sum() == n // 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1 2.5,-3e2;inf\n-inf nan −4 ∞", [1, 2.5, -300, np.inf, -np.inf, np.nan, -4, np.inf]), (" 7 ", [7])],
)
def test_parse_own_numbers(text, expected):
    np.testing.assert_array_equal(softmax_inputs.parse(text), np.array(expected, np.float32))


@every(
    ("text", "words"),
    [
        ("1 two 3", "“two” is not a number .inf, -inf and nan are allowed."),
        ("1_000", "“1_000” is not a number"),
        ("", "must have 1 to 64 numbers, got 0"),
        ("1 " * 65, "must have 1 to 64 numbers, got 65"),
        ("4e38", "“4e38” does not fit FP32, which ends at ±3.4·10³⁸"),
        ("1 \x00", "is not a number"),
        ("9" * 400, "does not fit FP32"),
        ("-1e999", "does not fit FP32"),
    ],
)
def test_parse_names_the_broken_rule(text, words):
    with pytest.raises(softmax_inputs.LogitsError, match=words):
        softmax_inputs.parse(text)
    if text:
        parsed = softmax_address.row(SoftmaxShape(1, 5), softmax_inputs.OWN_NUMBERS, text)
        assert parsed.note.endswith("Until then, the row is “small”.") and parsed.x.size == 5


@settings(max_examples=20)
@given(st.text(max_size=60))
def test_any_text_gives_numbers_or_a_rule(text):
    try:
        x = softmax_inputs.parse(text)
    except softmax_inputs.LogitsError as error:
        assert str(error)
    else:
        assert 1 <= x.size <= softmax_inputs.MAX_OWN_NUMBERS


# -- a row by every rung -------------------------------------------------------------------------------
@pytest.mark.parametrize("name", LOGITS)
def test_outcomes_are_compared_with_float64(name):
    x = softmax_inputs.row(name, 40)
    outcomes = {outcome.rung: outcome for outcome in softmax_notes.outcomes(x, SMALL)}
    for rung, outcome in outcomes.items():
        assert (outcome.reads, outcome.writes) == (outcome.predicted, 1) == (softmax_ladder.reads(rung), 1)
        assert outcome.is_right == (rung != "softmax/unsafe" or name != softmax_inputs.LARGE)
    if name == softmax_inputs.LARGE:
        assert outcomes["softmax/unsafe"].verdict == f"NaN in {(x > 88.72).sum()} of 40"


def test_nan_is_right_only_if_the_definition_gives_it():
    x = np.array([1, np.inf, 2], np.float32)
    assert all(
        outcome.is_right and "as the definition says" in outcome.verdict
        for outcome in softmax_notes.outcomes(x, SMALL)
        if outcome.rung != "softmax/unsafe"
    )
    assert "∞ − ∞ has no value" in softmax_notes.row_sentence(x)
    assert "All numbers are −∞" in softmax_notes.row_sentence(np.full(3, -np.inf, np.float32))
    sums = np.full(9, 88.5, np.float32)  # each finite, their sum not
    (unsafe,) = softmax_notes.outcomes(sums, UNSAFE)
    assert not unsafe.is_right and unsafe.verdict == "wrong: the sum is 0, not 1"


# -- the notes -----------------------------------------------------------------------------------------
def row(rung: str, ms: float, **more):
    shape = SOFTMAX_PRESETS["softmax-attention"].shape.params()
    row = {"rung": rung, "engine": "cuda", "shape": shape, "median_ms": ms, "p20_ms": ms, "p80_ms": ms}
    return row | more


def test_gain_and_cost_sentences_have_the_figures():
    rows = {
        r["rung"]: r
        for r in (
            row("softmax/unsafe", 0.01),
            row("softmax/three-pass", 0.05),
            row("softmax/registers", 0.02, ceilings={"copy_bytes_per_s": 4e12}),
            row("softmax/library", 0.018),
        )
    }
    text = softmax_notes.softmax_gain(rows)
    assert "“a row in registers” is 2.5× as fast as three passes" in text
    assert "“a row in registers” reaches 90 % of the speed of PyTorch softmax" in text
    rows["softmax/registers"]["median_ms"] = rows["softmax/registers"]["p20_ms"] = 0.06
    assert "Three passes are the fastest at this size" in softmax_notes.softmax_gain(rows)
    assert softmax_notes.softmax_gain({}) == ""
    cost = softmax_notes.softmax_cost(SoftmaxShape(8192, 1024))
    assert "Three passes over x move 134 MB. Two passes move 101 MB. One pass moves 67.1 MB" in cost


def test_the_share_of_useful_bytes_is_given_beside_the_share_of_all_bytes():
    """Three passes can reach 98 % of their roof, for the roof counts repeated reads. Of useful bytes it is half of that."""
    useful = 2 * 4 * 8192 * 1024
    ms = useful / 4e12 * 1e3
    ceilings = {"copy_bytes_per_s": 4e12}
    three_pass, registers = (
        row(f"softmax/{name}", ms * by, ceilings=ceilings)
        for name, by in (("three-pass", 2.0408), ("registers", 1.3889))
    )
    text = softmax_notes.softmax_gain({r["rung"]: r for r in (three_pass, registers)})
    assert "counts all bytes that it moves" in text and "Useful bytes are only 67.1 MB" in text
    assert "72 % of the time of “a row in registers” and 49 % of the time of three passes" in text
    alone = softmax_notes.softmax_gain({"softmax/three-pass": three_pass})
    assert "This is 49 % of the time of three passes." in alone
    del registers["ceilings"]
    assert "Useful" not in softmax_notes.softmax_gain({r["rung"]: r for r in (three_pass, registers)})


@pytest.mark.parametrize(
    ("largest", "says"),
    [
        (95, "exp overflows FP32"),
        (5, "the unsafe kernel is right too"),
        (-100.5, "keeps fewer digits"),
        (-200, "0 / 0 is NaN"),
    ],
)
def test_the_sentence_on_a_row_fits_its_largest_number(largest, says):
    x = np.array([largest, largest - 1], np.float32)
    assert says in softmax_notes.row_sentence(x)
    (unsafe,) = softmax_notes.outcomes(x, UNSAFE)
    assert unsafe.is_right == ("is right too" in softmax_notes.row_sentence(x))


def test_the_number_of_right_kernels_is_told():
    x = softmax_inputs.row(softmax_inputs.LARGE, 40)
    outcomes = softmax_notes.outcomes(x, SMALL)
    assert softmax_notes.outcomes_sentence(outcomes) == "7 of 8 kernels give the right result for this row."
    assert softmax_notes.outcomes_sentence(outcomes[1:]).startswith("All kernels give the right result")


def test_errors_are_powers_of_ten():
    assert softmax_notes._power(1.23e-7) == "1·10⁻⁷" and softmax_notes._power(0.0) == "0"
