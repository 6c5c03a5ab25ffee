"""The softmax ladder without a GPU: results at any shape and tile size and for any numbers, the overflow of the unsafe
kernel, races, rules, and the arguments of PyTorch's call."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cpu, cuda, emulator
from kernels.libraries import torch as torch_library
from kernels.machine.status import Status
from kernels.model.program import RuleError
from kernels.model.shape import ShapeError
from kernels.model.verify import agrees
from kernels.records import availability
from kernels.runner import VerificationError, run, seeded_inputs
from kernels.softmax import ladder as softmax_ladder
from kernels.softmax.presets import SOFTMAX_PRESETS
from kernels.softmax.shape import SoftmaxShape, parse_softmax
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.fake_torch import fake_cuda
from tests.helpers.offenders import every

RUNGS = {rung.name: rung for rung in softmax_ladder.RUNGS}
SAFE = [name for name in RUNGS if name != "softmax/unsafe"]
ENGINES = (emulator, cpu)
UNSAFE = RUNGS["softmax/unsafe"]
# Few threads, of the rungs whose default grid fills a GPU: (the tile sizes of a short row, of a long one).
FEW = {
    "softmax/cluster": ({"BLOCK": 32, "PER": 8}, {"CLUSTER": 8, "BLOCK": 32, "PER": 16}),
    "softmax/split": ({"BLOCKS": 8, "BLOCK": 32, "LOADS": 1}, {"BLOCKS": 8, "BLOCK": 32, "LOADS": 2}),
    "softmax/one-launch": ({"BLOCKS": 8, "BLOCK": 32, "PER": 16}, {"BLOCKS": 8, "BLOCK": 128, "PER": 16}),
}
MAX_THREADS = 2**13  # of a grid, at random tile sizes
extents = st.one_of(st.integers(1, 9), st.integers(1, 70))
shapes = st.builds(SoftmaxShape, st.integers(1, 6), extents)


def few(name: str, blocks: int = 8) -> dict[str, int]:
    """Returns tile sizes of few threads for a short row; the default ones of a rung whose block has a row."""
    tiles = FEW[name][0] if name in FEW else {}
    return tiles | ({"BLOCKS": blocks} if "BLOCKS" in tiles else {})


def make_inputs(kind: str, s: SoftmaxShape) -> dict[str, np.ndarray]:
    """Returns an input x of the given kind."""
    rng, x = np.random.default_rng(3), np.empty((s.M, s.N), np.float32)
    x[...] = {
        "logits of 1e4": 1e4 * np.sign(rng.standard_normal(x.shape)),
        "all equal": 7.0,
        "all far below 0": -1e30,
        "one hot": np.where(np.arange(s.N) == s.N // 2, 1e4, 0),
        "rising": 1e3 * np.arange(s.N),
        "falling": -1e3 * np.arange(s.N),
        "every size": rng.standard_normal(x.shape) * 10.0 ** rng.integers(-30, 30, x.shape),
        "masked": np.where(np.arange(s.N) >= s.N - s.N // 2, -np.inf, rng.standard_normal(x.shape)),
        "masked first": np.where(np.arange(s.N) < s.N // 2, -np.inf, rng.standard_normal(x.shape)),
    }[kind]
    return {"x": x}


FINITE = (
    "logits of 1e4",
    "all equal",
    "all far below 0",
    "one hot",
    "rising",
    "falling",
    "every size",
    "masked",
    "masked first",
)


# -- results -----------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=3)
@given(data=st.data())
def test_both_engines_agree_with_the_reference_at_any_shape_and_tile_sizes(name, data):
    shape, rung = data.draw(shapes), RUNGS[name]
    legal = rung_runs.legal(rung, shape)
    tiles = data.draw(st.sampled_from([t for t in legal if t.get("BLOCKS", 1) * t.get("BLOCK", 1) <= MAX_THREADS]))
    for engine in ENGINES:
        rung_runs.verified_output(engine, rung, shape, tiles)


@pytest.mark.parametrize("name", RUNGS)
def test_rows_longer_than_a_turn_and_than_a_cpu_tile(name):
    shape = SoftmaxShape(3, 2500)
    tiles = FEW[name][1] if name in FEW else {"PER": 32} if "PER" in RUNGS[name].tiles else {}
    both = [rung_runs.verified_output(engine, RUNGS[name], shape, tiles) for engine in ENGINES]
    np.testing.assert_allclose(*both, rtol=3e-6)


@pytest.mark.parametrize("name", SAFE)
def test_hard_rows_stay_finite_and_right(name):
    """Each kind has a row."""
    row, shape = SoftmaxShape(1, 75), SoftmaxShape(len(FINITE), 75)
    inputs = {"x": np.concatenate([make_inputs(kind, row)["x"] for kind in FINITE])}
    for engine in ENGINES:
        y = rung_runs.verified_output(engine, RUNGS[name], shape, few(name, 132), inputs)
        np.testing.assert_allclose(y.sum(axis=1, dtype="f8"), 1, rtol=1e-6)


SPOILT = {"NaN": np.nan, "+infinity": np.inf, "nothing but -infinity": -np.inf}


@pytest.mark.parametrize("name", SAFE)
def test_infinities_and_nans_give_what_the_reference_gives(name):
    """Each case has a row, between rows without one."""
    everywhere = slice(None)
    spoilt = [(SPOILT[case], at) for case in ("NaN", "+infinity") for at in (0, 33, everywhere)]
    spoilt.append((SPOILT["nothing but -infinity"], everywhere))
    shape = SoftmaxShape(2 * len(spoilt) + 1, 75)
    inputs = seeded_inputs(RUNGS[name].build(shape, RUNGS[name].default_tiles).of_role("input"))
    for row, (value, at) in enumerate(spoilt):
        inputs["x"][2 * row + 1, at] = value
    ref, _ = softmax_ladder.reference(shape, **inputs)
    assert np.isnan(ref).any(axis=1).tolist() == [row % 2 == 1 for row in range(shape.M)]
    for engine in ENGINES:
        with np.errstate(all="ignore"):
            y, _ = rung_runs.computed(engine, RUNGS[name], shape, few(name, 132), inputs)
        np.testing.assert_array_equal(np.isnan(y), np.isnan(ref))
        np.testing.assert_allclose(y, ref, rtol=2e-6)


def test_reference_equals_the_definition():
    x = np.array([[1.0, 2.0, 4.0], [-np.inf, 0.0, 0.0]], np.float32)
    ref, scale = softmax_ladder.reference(SoftmaxShape(2, 3), x)
    e = np.exp(x[0].astype("f8"))
    np.testing.assert_allclose(ref, [e / e.sum(), [0, 0.5, 0.5]], rtol=1e-14)
    assert (scale >= ref).all() and np.isfinite(scale).all()


# -- the unsafe kernel ---------------------------------------------------------------------------------
def unsafe(*x: float) -> np.ndarray:
    inputs = {"x": np.array([x], np.float32)}
    ys = []
    for engine in ENGINES:
        with np.errstate(all="ignore"):
            ys.append(rung_runs.computed(engine, UNSAFE, SoftmaxShape(1, len(x)), {"BLOCK": 8}, inputs)[0][0])
    np.testing.assert_allclose(*ys, rtol=1e-5)
    return ys[0]


@settings(max_examples=20)
@given(st.lists(st.floats(-80, 87, width=32), max_size=10), st.floats(80, 200, width=32))
def test_it_overflows_exactly_where_exp_does(others, largest):
    """It overflows if the largest exceeds 88.722839, the logarithm of the largest float32 (apart from sums)."""
    y = unsafe(largest, *others)
    if largest < 87.9:
        assert np.isfinite(y).all()
    if largest < 88.7228 and not others:
        assert y[0] == pytest.approx(1, rel=1e-6)
    if largest > 88.7229:
        assert np.isnan(y[0]) and (y[1:] == 0).all()


def test_unsafe_kernel_at_its_limits():
    assert np.isfinite(unsafe(88.72)).all() and np.isnan(unsafe(88.73)).all()
    assert (unsafe(88.5, 88.5, 88.5) == 0).all()  # each is finite, their sum is not
    assert np.isnan(unsafe(-104.5, -105)).all()  # 0 / 0
    np.testing.assert_allclose(unsafe(3, 3), 0.5)


@pytest.mark.parametrize("engine", ["cpu", "emulator"])
def test_run_verifies_the_unsafe_kernel(engine):
    shape = SoftmaxShape(2, 40)
    small = {"x": np.random.default_rng(0).standard_normal((2, 40))}
    assert run("softmax/unsafe", shape, small, engine=engine, measure=False).error < 1e-6
    large = {"x": 60 * small["x"]}
    with np.errstate(all="ignore"), pytest.raises(VerificationError, match=r"unsafe .*nothing unverified gets a time"):
        run("softmax/unsafe", shape, large, engine=engine, measure=False)
    assert run("softmax/online", shape, large, engine=engine, measure=False).error < 1e-6


# -- races, faults -------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
def test_warp_order_changes_nothing_and_no_races(name):
    tiles = {"BLOCK": 128} if "BLOCK" in RUNGS[name].tiles else {"WARPS": 4}
    tiles |= {"BLOCKS": 132, "BLOCK": 32} if "BLOCKS" in RUNGS[name].tiles else {}
    rung_runs.same_in_any_order(
        lambda options: rung_runs.verified_output(emulator, RUNGS[name], SoftmaxShape(5, 300), tiles, options=options)
    )


FAULTS = {  # what is wrong: (the kernel, original code, faulty code)
    "the sum not rescaled": ("online", "a.l * expf(a.m - shift) +", "a.l +"),
    "no shift for rows of -infinity": ("online", "m == -INFINITE ? 0.0f : m", "m"),
    "the levels' barrier": ("online", "    __syncthreads();\n    if (thread < stride) {", "    if (thread < stride) {"),
    "the barrier before the array is used again": ("three-pass", "  __syncthreads();  // all", "  // all"),
    "the last exchange left out": ("warp-shuffle", "lane_mask = 16; lane_mask;", "lane_mask = 16; lane_mask > 1;"),
    "the parts' barrier": ("registers", "  __syncthreads();\n", ""),
    "the cluster's barrier": ("cluster", "arrive_at_cluster();\n  wait_for_cluster();\n  all", "all"),
    "columns of the next row": (
        "cluster",
        "if (col >= 0 && col + 4 <= N) return",
        "if (col >= 0 && col + 3 <= N) return",
    ),
    "the barrier before the words": ("one-launch", "  __syncthreads();\n  if (thread < 32) {", "  if (thread < 32) {"),
}
SPLIT_FAULTS = {  # what is wrong: (the launch, BLOCKS, original code, faulty code)
    "a part's last turn": (0, 4, "first < part.end;", "first + 4 * BLOCK * LOADS < part.end;"),
    "the barrier of the block": (0, 4, "  __syncthreads();\n", ""),
    "only 32 parts merged": (1, 132, "i < splits; i += 32", "i < splits && i < 32; i += 32"),
    "the maximum not taken off": (1, 132, "exp_of(values[i], all.m)", "exp_of(values[i], 0.0f)"),
}


@needs_nvrtc
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_the_kernel_is_detected(fault):
    """The tests above would detect a kernel with one fault."""
    which, right, wrong = FAULTS[fault]
    rung, shape = RUNGS[f"softmax/{which}"], SoftmaxShape(2, 303)
    tiles = {"BLOCK": 128} if "BLOCK" in rung.tiles else {}
    tiles |= {"BLOCKS": 132, "PER": 4} if "BLOCKS" in rung.tiles else {}
    program = rung.build(shape, rung.check(shape, tiles))
    inputs = seeded_inputs(program.of_role("input"))
    inputs["x"][1, :130] = -np.inf if "-infinity" in fault else inputs["x"][1, :130]
    rung_runs.assert_fault_is_detected(rung, shape, program, inputs, right, wrong)


@needs_nvrtc
@pytest.mark.parametrize("fault", SPLIT_FAULTS)
def test_fault_in_a_launch_is_detected(fault):
    nth, blocks, right, wrong = SPLIT_FAULTS[fault]
    rung, shape = RUNGS["softmax/split"], SoftmaxShape(2, 1801)
    program = rung.build(shape, rung.check(shape, {"BLOCKS": blocks, "BLOCK": 128, "LOADS": 1}))
    inputs = seeded_inputs(program.of_role("input"))
    inputs["x"][1] += np.linspace(0, 50, shape.N, dtype=np.float32)
    rung_runs.assert_fault_in_launch_is_detected(rung, shape, program, inputs, nth, right, wrong)


def test_each_launch_stores_the_other_sign():
    """A word with the sign of the launch before is never taken for a new one. The results stay right, also of other x."""
    rung, shape = RUNGS["softmax/one-launch"], SoftmaxShape(2, 303)
    program = rung.build(shape, rung.check(shape, {"BLOCKS": 8, "BLOCK": 32, "PER": 4}))
    memory = rung_runs.memory_of(program, seeded_inputs(program.of_role("input")))
    for n in range(4):
        x = np.random.default_rng(n).standard_normal((2, 303)).astype(np.float32)
        memory.write("x", x)
        rung_runs.relaunched(program.steps[0], str, memory)
        assert (memory.array("part_ml") >> 63 == (n + 1) % 2).all()
        ref, scale = softmax_ladder.reference(shape, x)
        assert agrees(memory.array("y"), ref, scale, rung.tolerance)


# -- rules, cost, bytes ----------------------------------------------------------------------------------
@needs_nvrtc
@settings(max_examples=8)
@given(data=st.data())
def test_every_choice_of_tile_sizes_runs_or_names_its_rule(data):
    rung = data.draw(st.sampled_from(softmax_ladder.RUNGS))
    shape = SoftmaxShape(2, data.draw(st.integers(1, 300)))
    tiles = rung_runs.some_tiles(data, rung, shape)
    tiles |= {"BLOCKS": 8} if "BLOCKS" in tiles else {}  # few threads
    rung_runs.runs_or_names_its_rule(rung, shape, tiles, "<=|below")


HUGE = 2**31 - 1
RULES = [
    ("softmax/registers", SoftmaxShape(1, 1025), {}, r"N \(a row in BLOCK\*PER registers\) <= 1024, got 1025"),
    ("softmax/online", SoftmaxShape(1, HUGE), {}, r"N must stay below 2\^31 - 256, got 2147483647"),
    ("softmax/warp-shuffle", SoftmaxShape(HUGE, 1), {}, r"M must stay below 2\^31 - 8, got 2147483647"),
    ("softmax/warp-shuffle", SoftmaxShape(1, HUGE), {}, r"N must stay below 2\^31 - 32, got 2147483647"),
    (
        "softmax/cluster",
        SoftmaxShape(4, 2**20),
        {},
        r"N \+ 3 \(a row in CLUSTER\*BLOCK\*PER registers\) <= 57344, got 1048579",
    ),
    ("softmax/one-launch", SoftmaxShape(529, 8), {}, r"M \(each row needs a block\) <= 528, got 529"),
    (
        "softmax/one-launch",
        SoftmaxShape(3, 2**20),
        {"BLOCK": 128},
        r"N \+ 3 \(a row in splits\*BLOCK\*PER registers\) <= 720896, got 1048579",
    ),
    (
        "softmax/one-launch",
        SoftmaxShape(4, 8),
        {"BLOCK": 512},
        r"M\*splits\*BLOCK\*\(PER \+ 32\) \(registers of blocks that run at the same time\) <= 8650752, got 17301504",
    ),
    ("softmax/cluster", SoftmaxShape(2**30, 8), {}, r"M\*CLUSTER \(grid.x\) must stay below 2\^31, got 8589934592"),
    ("softmax/split", SoftmaxShape(1, HUGE), {}, r"N must stay below 2\^31 - 18432, got 2147483647"),
    ("softmax/three-pass", SoftmaxShape(1, 1), {"BLOCK": 5}, "BLOCK must be one of 4, 8, 32"),
    ("softmax/unsafe", SoftmaxShape(1, 1), {"WARPS": 4}, "no tile size 'WARPS'"),
]


@every(("name", "shape", "tiles", "message"), RULES)
def test_unsupported_settings_name_the_rule(name, shape, tiles, message):
    with pytest.raises(RuleError, match=message):
        RUNGS[name].check(shape, tiles)


def test_text_is_parsed_or_refused():
    assert parse_softmax("M=8192,N=1024") == SoftmaxShape(8192, 1024)
    for text, message in (
        ("M=2", "missing N"),
        ("M=2,N=0", r"N must be in 1 .. 2147483647, got 0"),
        ("M=2,N=1.5", "N must be a whole number"),
        ("M=2,N=4,K=1", "no field 'K'; there are: M, N"),
    ):
        with pytest.raises(ShapeError, match=message):
            parse_softmax(text)


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("shape", [SoftmaxShape(2, 40), SoftmaxShape(3, 300)], ids=str)
def test_predicted_bytes_equal_counted_bytes(name, shape):
    """Three reads and one write, two and one, or one and one, exact to the byte."""
    rung = RUNGS[name]
    program_tiles = rung.check(shape, few(name, 132) if name in FEW else {})
    program = rung.build(shape, program_tiles)
    session = emulator.open(program, seeded_inputs(program.of_role("input")))
    session.verify_run()
    total, cost = session.counters.total, rung.cost(shape, program)
    parts = program.nbytes("workspace")  # of a row in many blocks: each is written once
    assert cost.workspace_bytes == parts and bool(parts) == ("BLOCKS" in rung.tiles)
    if name == "softmax/one-launch":  # each block loads the words of its row, once or more often
        assert total["bytes_st"] == 4 * shape.elements + parts
        words = total["bytes_ld"] - 4 * shape.elements
        assert words >= softmax_ladder.splits_of(shape, program_tiles) * parts and words % 8 == 0
        return
    if parts:  # and each warp of the second launch reads all parts of its row
        parts_read = softmax_ladder.splits_of(shape, program_tiles) * program.steps[1].block[0] // 32 * parts
    else:
        parts_read = 0
    assert total["bytes_ld"] == 4 * softmax_ladder.reads(name) * shape.elements + parts_read
    assert total["bytes_ld"] + total["bytes_st"] == cost.bytes + parts + parts_read


def test_one_read_and_one_write_is_the_minimum():
    shape = SOFTMAX_PRESETS["softmax-attention"].shape
    costs = {name: rung.cost(shape, rung.build(shape, rung.default_tiles)) for name, rung in RUNGS.items()}
    traffic_ratio = {name: cost.bytes / shape.bytes for name, cost in costs.items() if not RUNGS[name].unmeasured}
    assert traffic_ratio == {
        "softmax/unsafe": 1.5,
        "softmax/three-pass": 2,
        "softmax/online": 1.5,
        "softmax/warp-shuffle": 1.5,
        "softmax/registers": 1,
        "softmax/cluster": 1,
        "softmax/split": 1.5,
        "softmax/one-launch": 1,
    }
    assert costs["softmax/registers"].flops == shape.flops


def test_operations_per_element():
    """A comparison, an addition, an exponential or a division is one. Online softmax and the split add a correction."""
    shape = SOFTMAX_PRESETS["softmax-attention"].shape
    per_element = {
        name: rung.cost(shape, rung.build(shape, rung.default_tiles)).flops / shape.elements
        for name, rung in RUNGS.items()
    }
    exponentials = {"unsafe": 2, "three-pass": 2, "online": 3, "warp-shuffle": 3, "registers": 1, "split": 2}
    others = {"unsafe": 2, "three-pass": 5, "online": 6, "warp-shuffle": 6, "registers": 4, "split": 5}
    for name, count in exponentials.items():
        assert per_element[f"softmax/{name}"] == count + others[name], name
    assert per_element["softmax/cluster"] == per_element["softmax/one-launch"] == per_element["softmax/registers"]


@every("name", RUNGS)
def test_cpu_engine_allocates_no_second_matrix(name):
    """It allocates at most a maximum and a sum per row, and NumPy's temporaries for them."""
    shape = SoftmaxShape(512, 1000)
    program = RUNGS[name].build(shape, RUNGS[name].default_tiles)
    session = cpu.Session(program, seeded_inputs(program.of_role("input")))
    session.verify_run()
    assert session.memory.workspace < 4 * shape.elements / 20


# -- PyTorch -----------------------------------------------------------------------------------------
def test_missing_pytorch_is_explained(monkeypatch):
    rung, shape = softmax_ladder.LIBRARY, SoftmaxShape(2, 40)
    monkeypatch.setattr(cuda, "status", lambda: Status(False, "no NVIDIA GPU in this machine"))
    assert list(availability.reasons(rung, shape, {})) == ["PyTorch was not called here: no NVIDIA GPU in this machine"]
    monkeypatch.setattr(cuda, "status", lambda: Status(True, "a GPU"))
    monkeypatch.setattr(torch_library.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuleError, match=r"softmax/library cannot run .*pip install torch installs it"):
        run(rung.name, shape, engine="cuda")
    assert rung.engines == ("cuda",) and rung.title_on("cpu") == "PyTorch softmax"


def test_pytorch_writes_softmax_of_the_rows_to_y_on_our_stream(monkeypatch):
    """Uses fakes of the parts of PyTorch and CuPy that are called."""
    active_contexts, contexts_at_call = [], []

    class Context:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            active_contexts.append(self.name)

        def __exit__(self, *_):
            active_contexts.remove(self.name)

    def computed(x, dim, out):
        contexts_at_call.append(tuple(active_contexts))
        assert dim == 1
        out[...] = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)

    torch = types.SimpleNamespace(
        softmax=computed,
        from_dlpack=lambda array: array,
        inference_mode=lambda: Context("inference"),
        cuda=fake_cuda(Context),
    )
    stream = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=7))
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=stream))
    monkeypatch.setattr(torch_library, "load", lambda: torch)
    shape = SoftmaxShape(3, 17)
    program = softmax_ladder.LIBRARY.build(shape, {})
    (step,) = program.steps
    inputs = seeded_inputs(program.of_role("input"))
    arrays = inputs | {"y": np.full((3, 17), np.nan, np.float32)}
    step.bind(*(arrays[a] for a in step.args))()
    ref, scale = softmax_ladder.reference(shape, **inputs)
    assert agrees(arrays["y"], ref, scale, softmax_ladder.LIBRARY.tolerance)
    assert contexts_at_call == [("stream 7", "inference")]
