"""The norm ladders without a GPU: results at any shape and tile size and for hard numbers, digits that sums lose, races,
faults in the kernels, rules, bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cpu, emulator
from kernels.model.program import INPUT, Launch, RuleError
from kernels.model.shape import ShapeError
from kernels.model.verify import agrees, by_output
from kernels.norm.common import parts_of
from kernels.norm.ladder import LADDERS
from kernels.norm.maps_ladder import BATCH_NORM, BATCH_NORM_BACKWARD, nchw_parts, nhwc_parts
from kernels.norm.revealing import SMALL
from kernels.norm.shape import LAYOUTS, BatchNormShape
from kernels.runner import VerificationError, inputs_of, run, rung_reference
from tests.helpers import rung_runs
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every

LADDER_OF = {rung.name: ladder for ladder in LADDERS for rung in ladder.rungs}
RUNGS = {rung.name: rung for ladder in LADDERS for rung in ladder.rungs if not rung.library}
ENGINES = (emulator, cpu)
ATOMIC = [name for name in RUNGS if "atomics" in name]
FORWARD = [name for name in RUNGS if "backward" not in name and "inference" not in name]
small = st.integers(1, 5)
maps = st.tuples(st.integers(1, 3), st.integers(1, 9), small, small, st.sampled_from(LAYOUTS))
rows = st.tuples(st.integers(1, 6), st.one_of(st.integers(1, 9), st.integers(1, 140)))


def of_maps(name: str) -> bool:
    return name.startswith("batch-norm")


def shape_of(name: str, *extents):
    return LADDER_OF[name].shape(*extents)


def layout_of(name: str) -> str:
    """Returns a layout that a rung of batch norm runs."""
    return "nhwc" if "nhwc" in name else "nchw"


def medium(name: str):
    """Returns a shape that no tile divides, for one of several rungs."""
    return shape_of(name, 2, 5, 7, 11, layout_of(name)) if of_maps(name) else shape_of(name, 9, 500)


def some_tiles(name: str) -> dict[str, int]:
    """Returns tile sizes with several warps, several parts of a channel, and several rows of a block."""
    block = 32 if "split" in name else 128
    wanted = {"BLOCK": block, "WARPS": 4, "BLOCKS": 12 if of_maps(name) else 3, "PER": 32 if "warp" in name else 4}
    return {tile: wanted[tile] for tile in RUNGS[name].tiles}


# -- results -------------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=3)
@given(data=st.data())
def test_both_engines_agree_with_the_reference_at_any_shape_and_tile_sizes(name, data):
    shape, rung = shape_of(name, *data.draw(maps if of_maps(name) else rows)), RUNGS[name]
    legal = rung_runs.legal(rung, shape)
    if not legal:
        assert any("layout must be" in rule or "N (a row" in rule for rule in rung.rules(shape, rung.default_tiles))
        return
    tiles = data.draw(st.sampled_from(legal))
    for engine in ENGINES:
        rung_runs.verified_outputs(engine, rung, shape, tiles)


@needs_nvrtc
@pytest.mark.parametrize("name", [name for name in RUNGS if "nhwc" in name])
def test_few_channels_are_summed_by_many_rows_of_threads(name):
    """With one thread along the channels, a warp's lanes are in several steps of the sum's tree."""
    for channels in (4, 8, 16):
        rung_runs.verified_outputs(emulator, RUNGS[name], shape_of(name, 1, channels, 2, 2, "nhwc"))


HARD = ("mean of 1e4", "all equal", "zeros", "one outlier", "every size", "alternating", "tiny")


def hard_inputs(kind: str, name: str, shape, seed: int = 3) -> dict[str, np.ndarray]:
    """Returns seeded inputs whose x is of a kind. What the ladder derives of x is derived."""
    program = RUNGS[name].build(shape, RUNGS[name].check(shape, some_tiles(name)))
    inputs, rng = inputs_of(LADDER_OF[name], shape, program, seed), np.random.default_rng(seed)
    x = np.empty(inputs["x"].shape, np.float32)
    flat = np.arange(x.size).reshape(x.shape)
    x[...] = {
        "mean of 1e4": 1e4 + rng.standard_normal(x.shape),
        "all equal": 7.3,
        "zeros": 0.0,
        "one outlier": np.where(flat == x.size // 2, 1e4, rng.standard_normal(x.shape)),
        "every size": rng.standard_normal(x.shape) * 10.0 ** rng.integers(-12, 12, x.shape),
        "alternating": np.where(flat % 2, 1000.0, -1000.0),
        "tiny": 1e-15 * rng.standard_normal(x.shape),
    }[kind]
    inputs["x"] = x
    return inputs | dict(LADDER_OF[name].derive(shape, inputs) if LADDER_OF[name].derive else {})


@pytest.mark.parametrize("name", RUNGS)
def test_hard_numbers_stay_finite_and_right(name):
    """Each kind has a channel of the maps, or a row."""
    shape = shape_of(name, 2, 7, 4, 5, layout_of(name)) if of_maps(name) else shape_of(name, 7, 75)
    axis, inputs = shape.channel_axis if of_maps(name) else 0, hard_inputs("zeros", name, shape)
    by_kind = np.moveaxis(inputs["x"], axis, 0)
    for n, kind in enumerate(HARD):
        by_kind[n] = np.moveaxis(hard_inputs(kind, name, shape)["x"], axis, 0)[n]
    by_kind[HARD.index("one outlier")].flat[7] = 1e4
    inputs |= LADDER_OF[name].derive(shape, inputs) if LADDER_OF[name].derive else {}
    for engine in ENGINES:
        rung_runs.verified_outputs(engine, RUNGS[name], shape, some_tiles(name), inputs)


@every("name", FORWARD)
def test_saved_statistics_give_the_result(name):
    """The backward pass uses them: y = (x - mean) * invstd * gamma + beta, within roundings."""
    shape = medium(name)
    out, inputs = rung_runs.computed_outputs(emulator, RUNGS[name], shape, some_tiles(name))
    axis = shape.channel_axis if of_maps(name) else 0

    def along(vector, at):
        return vector.reshape([-1 if n == at else 1 for n in range(out["y"].ndim)])

    factor_axis = axis if of_maps(name) else 1
    inverse = out["invstd"] if "invstd" in out else out["invrms"]
    centred = inputs["x"] - (along(out["mean"], axis) if "mean" in out else 0)
    y = centred * along(inverse, axis) * along(inputs["gamma"], factor_axis)
    y = y + (along(inputs["beta"], factor_axis) if "beta" in inputs else 0)
    np.testing.assert_allclose(out["y"], y, rtol=1e-5, atol=1e-5)


# -- digits that sums lose ------------------------------------------------------------------------------
def errors_at(mean: float, engine) -> dict[str, float]:
    """Returns the relative error of 1 / std by each rung that runs NCHW, at numbers of deviation 1 around a mean."""
    shape = BatchNormShape(2, 2, 8, 16)
    errors = {}
    for rung in BATCH_NORM.rungs:
        if not rung.library and not any(rung.rules(shape, rung.default_tiles)):
            program = rung.build(shape, rung.default_tiles)
            inputs = inputs_of(BATCH_NORM, shape, program)
            inputs["x"][:, ::2] /= SMALL  # no small deviations here
            inputs["x"] += np.float32(mean)
            out, _ = rung_runs.computed_outputs(engine, rung, shape, inputs=inputs)
            exact = BATCH_NORM.reference(shape, **inputs)["invstd"][0]
            errors[rung.name.partition("/")[2]] = float(np.abs(out["invstd"] / exact - 1).max())
    return errors


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.__name__)
def test_sums_lose_digits_where_the_mean_is_large(engine):
    """Two digits more of the mean cost four digits of the variance by sums. The others keep theirs."""
    near, far = errors_at(1.0, engine), errors_at(1000.0, engine)
    assert near["sums"] < 2e-6
    assert far["sums"] > 1e-3
    for name in ("two-pass", "welford", "split"):
        assert far[name] < 1e-5


def test_the_loss_breaks_the_scale_of_the_others_and_keeps_its_own():
    """The tolerance of the sums is honest: their error at a large mean needs it."""
    rung, shape = RUNGS["batch-norm/sums"], BatchNormShape(2, 2, 8, 16)
    inputs = inputs_of(BATCH_NORM, shape, rung.build(shape, rung.default_tiles))
    inputs["x"] += np.float32(1000)
    out, _ = rung_runs.computed_outputs(emulator, rung, shape, inputs=inputs)
    reference = by_output(BATCH_NORM.reference(shape, **inputs), tuple(out))
    own = rung_reference(rung, shape, rung.default_tiles, inputs, reference)
    for expected, right in ((own, True), (reference, False)):
        assert agrees(out["invstd"], *expected["invstd"], rung.tolerance) == right


def test_a_variance_below_zero_is_clamped():
    """At a mean of 1e5 the difference of the sums has no right digit: it may be negative, and 1 / std stays finite."""
    rung, shape = RUNGS["batch-norm/sums"], BatchNormShape(1, 4, 4, 8)
    inputs = inputs_of(BATCH_NORM, shape, rung.build(shape, rung.default_tiles))
    inputs["x"] += np.float32(1e5)
    for engine in ENGINES:
        out = rung_runs.verified_outputs(engine, rung, shape, inputs=inputs)
        assert np.isfinite(out["y"]).all() and (out["invstd"] <= 317).all()


# -- races, orders, faults ------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize("name", [name for name in RUNGS if name not in ATOMIC])
def test_warp_order_changes_nothing_and_no_races(name):
    def outputs(options):
        out = rung_runs.verified_outputs(emulator, RUNGS[name], medium(name), some_tiles(name), options=options)
        return np.concatenate([values.ravel() for values in out.values()])

    rung_runs.same_in_any_order(outputs)


FAULTS = {  # what is wrong: (rung, the launch's source, original code, faulty code)
    "no barrier before the array is used again": ("batch-norm/two-pass", "01", "  __syncthreads();  // all", "  // all"),
    "merged without the distance": ("batch-norm/welford", "02", " + distance * distance * a.n * share", ""),
    "the square of the mean left in": ("batch-norm/sums", "03", " - m * m", ""),
    "numbers beyond the end counted": ("batch-norm/split", "04", "if (first + k * BLOCK < end) n += WIDTH;", "n += WIDTH;"),
    "the last part too large": ("batch-norm/split", "05", "min(per_part, vectors - p * per_part)", "per_part"),
    "the tree's barrier": ("batch-norm/split-nhwc", "06", "    __syncthreads();\n", ""),
    "half of the parts": ("batch-norm/split-nhwc", "07", "p += 32", "p += 64"),
    "the first part left out": ("batch-norm/split-nhwc", "08", "gridDim.y - 1 - blockIdx.y", "gridDim.y - max(1, blockIdx.y)"),
    "the channel of NHWC": ("batch-norm-inference/formula", "09", "i / HW % C", "i % C"),
    "the shift without the mean": ("batch-norm-inference/folded", "10", " - mean[channel] * scale", ""),
    "the image kept in the channel": ("batch-norm-inference/folded", "11", "map - divide(map, channels)", "map - 0 * divide(map, channels)"),
    "dgamma's term left out": ("batch-norm-backward/two-pass", "12", " - xhat * mean_gamma", ""),
    "xhat not centred": ("batch-norm-backward/split", "13", "(xs[k][w] - m) * s", "xs[k][w] * s"),
    "one part only": ("batch-norm-backward/split", "14", "p < parts", "p < 1"),
    "pixels beyond the end": ("batch-norm-backward/split-nhwc", "15", "first + k * TY < end && inside", "inside"),
    "the mean of another count": ("batch-norm-backward/split-nhwc", "16", "dbeta[channel + w] / pixels", "dbeta[channel + w] / C"),
    "every second partial": ("batch-norm-backward/split-nhwc", "17", "part += 8", "part += 16"),
    "beta's sums to gamma": ("batch-norm-backward/split-nhwc-one-sum", "31", "blockIdx.y ? partial_beta : partial_gamma", "partial_gamma"),
    "the row's mean not stored": ("layer-norm/three-reads", "18", "mean[row] = m, ", ""),
    "one thread's mean": ("layer-norm/welford", "19", "partial[0].mean", "partial[1].mean"),
    "the row's rest squared": ("layer-norm/warp", "20", "i * 32 + lane < N ? values[i] - m : 0.0f", "values[i] - m"),
    "the last warp left out": ("layer-norm/registers", "21", "warp < COUNT; ++warp) value", "warp < COUNT - 1; ++warp) value"),
    "N of a block": ("rms-norm/two-reads", "22", "partial[0] / N", "partial[0] / BLOCK"),
    "an exchange too few": ("rms-norm/warp", "23", "float value) {\n  for (int lane_mask = 16; lane_mask;", "float value) {\n  for (int lane_mask = 16; lane_mask > 1;"),
    "gamma of another column": ("rms-norm/registers", "24", "gamma + col", "gamma"),
    "a store for an addition": ("layer-norm-backward/atomics", "25", "atomicAdd(&dbeta[col], dy[col])", "dbeta[col] = dy[col]"),
    "g without gamma": ("layer-norm-backward/columns", "26", "s * (g - mean_g", "s * (dy[col] - mean_g"),
    "one warp's columns": ("layer-norm-backward/columns", "27", "other < 8", "other < 7"),
    "sums after gamma": ("layer-norm-backward/registers", "28", "sum_beta[i][w] += gs[i][w];\n        gs[i][w] *= gammas[w];", "gs[i][w] *= gammas[w];\n        sum_beta[i][w] += gs[i][w];"),
    "xhat not scaled": ("rms-norm-backward/atomics", "29", "xhat = x[col] * s;", "xhat = x[col];"),
    "a row too far": ("rms-norm-backward/registers", "30", "row += gridDim.x", "row += gridDim.x + 1"),
}  # fmt: skip


@needs_nvrtc
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_the_kernel_is_detected(fault):
    """The tests above would detect a kernel with one fault."""
    name, file, right, wrong = FAULTS[fault]
    rung, shape, tiles = RUNGS[name], medium(name), some_tiles(name)
    if file in ("07", "17"):  # they add up many parts
        shape, tiles = shape.with_(H=24, W=24), tiles | {"BLOCKS": 1056}
    program = rung.build(shape, rung.check(shape, tiles))
    inputs = inputs_of(LADDER_OF[name], shape, program)
    memory, raced = rung_runs.memory_of(program, inputs), False
    for step in program.steps:
        faulty = step.source.startswith(f"norm/{file}")
        done = rung_runs.relaunched(step, rung_runs.replace_once(wrong, right) if faulty else str, memory)
        if done is None:
            return
        raced |= bool(done.races)
    expected = by_output(LADDER_OF[name].reference(shape, **inputs), tuple(b.name for b in program.outputs))
    assert raced or not all(
        agrees(memory.array(output), ref, scale, rung.tolerance) for output, (ref, scale) in expected.items()
    )


def test_every_kernel_has_a_fault_that_is_detected():
    sources = {
        step.source[len("norm/") :][:2]
        for name, rung in RUNGS.items()
        for step in rung.build(medium(name), rung.check(medium(name), some_tiles(name))).steps
        if isinstance(step, Launch) and step.source.startswith("norm/")
    }
    assert sources == {file for _, file, _, _ in FAULTS.values()}


@pytest.mark.parametrize("engine", ["cpu", "emulator"])
def test_run_verifies_every_output(engine, monkeypatch):
    """A fault in a saved vector alone is found."""
    rung, shape = BATCH_NORM.rung("batch-norm/two-pass"), BatchNormShape(2, 3, 2, 2)
    original = BATCH_NORM.reference

    def other(s, **inputs):
        expected = dict(original(s, **inputs))
        ref, scale = expected["invstd"]
        return expected | {"invstd": (ref * 1.001, scale)}

    assert run(rung.name, shape, engine=engine, measure=False, seed=5).error < 1e-5
    object.__setattr__(BATCH_NORM, "reference", other)
    try:
        with pytest.raises(VerificationError, match="invstd of batch-norm/two-pass"):
            run(rung.name, shape, engine=engine, measure=False, seed=6)
    finally:
        object.__setattr__(BATCH_NORM, "reference", original)


# -- parts, rules, parsing, cost --------------------------------------------------------------------------
@settings(max_examples=20)
@given(st.integers(1, 10**6), st.integers(0, 3000), st.integers(1, 5000))
def test_parts_cover_all_numbers_and_none_is_empty(total, wanted, least):
    parts, size = parts_of(total, wanted, least)
    assert (parts - 1) * size < total <= parts * size
    assert parts <= max(wanted, 1) and (parts == 1 or size >= least)


def test_parts_fill_a_large_gpu():
    """ResNet-50 res2 at batch 64: about eight blocks for each of 132 SMs, and a whole float4 a load."""
    nchw, nhwc = (BATCH_NORM.presets[key].shape for key in ("batch-norm-res2", "batch-norm-res2-nhwc"))
    tiles = {"BLOCK": 256, "BLOCKS": 1056}
    width, vectors, parts, per_part = nchw_parts(nchw, tiles)
    assert width == 4 and parts * nchw.C == 1280 and vectors == nchw.count // 4
    defines, columns, parts, per_part = nhwc_parts(nhwc, tiles, "bn_partial_nhwc")
    assert defines == {"TX": 32, "TY": 8, "WIDTH": 4} and columns * parts >= 1000
    assert parts * per_part >= nhwc.count


HUGE = 2**31 - 1
RULES = [
    ("batch-norm/split", (1, 1, 1, 1, "nhwc"), {}, "layout must be nchw, got nhwc"),
    ("batch-norm-backward/split-nhwc", (1, 1, 1, 1), {}, "layout must be nhwc, got nchw"),
    ("batch-norm/welford", (2**13, 1, 2**6, 2**6), {}, r"N\*H\*W <= 16777216, got 33554432"),
    ("batch-norm/two-pass", (1, 1, 1, HUGE), {}, r"N\*H\*W must stay below 2\^31 - BLOCK, got 2147483647"),
    ("batch-norm-inference/folded", (1, 2**10, 2**10, 2**11), {}, r"N\*C\*H\*W must stay below"),
    ("layer-norm/warp", (1, 1025), {}, r"N \(a row in 32\*PER registers\) <= 1024, got 1025"),
    ("layer-norm/registers", (1, 4097), {}, r"N \(a row in BLOCK\*PER registers\) <= 4096, got 4097"),
    ("layer-norm/welford", (1, 2**24 + 1), {}, "N <= 16777216, got 16777217"),
    ("rms-norm/two-reads", (1, HUGE), {}, r"N must stay below 2\^31 - 256, got 2147483647"),
    ("rms-norm/warp", (HUGE, 1), {}, r"M must stay below 2\^31 - 8"),
    (
        "layer-norm-backward/registers",
        (1, 8),
        {"BLOCK": 1024, "PER": 32},
        r"BLOCK\*\(4\*PER \+ 32\) registers <= 65536",
    ),
    ("rms-norm-backward/registers", (HUGE, 1), {}, r"M must stay below 2\^31 - BLOCKS"),
    ("layer-norm/three-reads", (1, 1), {"BLOCK": 5}, "BLOCK must be one of 4, 8, 32"),
]


@every(("name", "extents", "tiles", "message"), RULES)
def test_unsupported_settings_name_the_rule(name, extents, tiles, message):
    with pytest.raises(RuleError, match=message):
        RUNGS[name].check(shape_of(name, *extents), tiles)


@every("ladder", LADDERS, ids=lambda ladder: ladder.name)
def test_text_is_parsed_or_refused(ladder):
    if ladder.name.startswith("batch"):
        assert ladder.parse("N=2,C=3,H=4,W=5") == ladder.shape(2, 3, 4, 5, "nchw")
        assert ladder.parse("N=2,C=3,H=4,W=5,layout=nhwc") == ladder.shape(2, 3, 4, 5, "nhwc")
        bad = ("N=2,C=3,H=4", "N=2,C=3,H=4,W=0", "N=2,C=3,H=4,W=5,layout=chwn", "N=1,C=1,H=1,W=1,K=1")
    else:
        assert ladder.parse("M=2,N=3") == ladder.shape(2, 3)
        bad = ("M=2", "M=2,N=0", "M=2,N=1.5", "M=2,N=4,layout=nchw")
    for text in bad:
        with pytest.raises(ShapeError):
            ladder.parse(text)


# Reads of vectors by every row: gamma and beta come from a cache, the emulator counts what threads request.
VECTORS = {
    "layer-norm/three-reads": 2,
    "layer-norm/welford": 2,
    "layer-norm/warp": 2,
    "layer-norm/registers": 2,
    "rms-norm/two-reads": 1,
    "rms-norm/warp": 1,
    "rms-norm/registers": 1,
    "layer-norm-backward/atomics": 2,
    "layer-norm-backward/columns": 4,
    "layer-norm-backward/registers": 1,
    "rms-norm-backward/atomics": 2,
    "rms-norm-backward/registers": 1,
    "batch-norm-inference/formula": 4,
    "batch-norm-inference/folded": 0.5,
}


def read_by_every_thread(step: Launch) -> int:
    """Returns how many floats of vectors each thread of a launch reads: factors of its channel, sums of all parts."""
    of_parts = {"bn_apply": (9, 2), "bn_backward_apply": (12, 3)}  # the number of parts is this argument; other floats
    if step.entry in of_parts:
        argument, others = of_parts[step.entry]
        return 2 * int(step.args[argument]) + others
    if step.entry == "bn_backward_partial":
        return 2
    width = dict(step.defines).get("WIDTH", 1)
    return {"bn_apply_nhwc": 4, "bn_backward_partial_nhwc": 2, "bn_backward_apply_nhwc": 5}.get(step.entry, 0) * width


@pytest.mark.parametrize("name", RUNGS)
def test_predicted_bytes_are_those_that_are_counted(name):
    """The passes over tensors, and the vectors that rows and threads read from caches. The rest is below 5 %."""
    rung = RUNGS[name]
    shape = shape_of(name, 3, 4, 64, 64, layout_of(name)) if of_maps(name) else shape_of(name, 32, 1024)
    wanted = {"BLOCK": 256, "BLOCKS": 12} if of_maps(name) else {"BLOCK": 32, "PER": 32, "BLOCKS": 3}
    program = rung.build(shape, rung.check(shape, {t: wanted[t] for t in rung.tiles if t in wanted}))
    session = emulator.open(program, inputs_of(LADDER_OF[name], shape, program))
    session.verify_run()
    total, cost = session.counters.total, rung.cost(shape, program)
    vectors = 4 * VECTORS.get(name, 0) * shape.elements + 2 * program.nbytes("workspace")
    vectors += sum(4 * read_by_every_thread(s) * int(np.prod((*s.grid, *s.block))) for s in program.steps)
    counted = total["bytes_ld"] + total["bytes_st"] - vectors
    assert 0.99 < counted / cost.bytes < 1.05
    assert cost.workspace_bytes == program.nbytes("workspace")


def test_the_minimum_traffic_is_reached_by_rows_in_registers():
    for ladder in LADDERS:
        costs = {
            rung.name: rung.cost(preset.shape, rung.build(preset.shape, rung.default_tiles)).bytes / preset.shape.bytes
            for preset in ladder.presets.values()
            for rung in ladder.rungs
            if not rung.library and not any(rung.rules(preset.shape, rung.default_tiles))
        }
        at_least = {"batch-norm": 1.5, "batch-norm-backward": 5 / 3}.get(ladder.name, 1)
        assert min(costs.values()) == pytest.approx(at_least), ladder.name


@pytest.mark.parametrize("name", [name for name in RUNGS if "cpu" in RUNGS[name].engines])
def test_cpu_engine_allocates_little(name):
    """At most two images, or a few rows, of temporary numbers."""
    rung = RUNGS[name]
    shape = shape_of(name, 64, 8, 24, 24, layout_of(name)) if of_maps(name) else shape_of(name, 2048, 512)
    program = rung.build(shape, rung.default_tiles)
    session = cpu.Session(program, inputs_of(LADDER_OF[name], shape, program))
    session.verify_run()
    assert session.memory.workspace < 4 * shape.elements


def test_inputs_that_the_backward_pass_needs_are_derived():
    shape = BATCH_NORM_BACKWARD.presets["batch-norm-backward-toy"].shape
    rung = BATCH_NORM_BACKWARD.rungs[0]
    program = rung.build(shape, rung.default_tiles)
    inputs = inputs_of(BATCH_NORM_BACKWARD, shape, program)
    assert {b.name for b in program.of_role(INPUT)} == set(inputs)
    np.testing.assert_allclose(inputs["mean"], inputs["x"].mean(axis=(0, 2, 3)), rtol=1e-5, atol=1e-6)
