"""A kernel's output beside a NumPy expression: right or wrong, which elements, where, and who wrote them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.__main__ import main
from kernels.engines.emulator import arguments, comparison, user_kernel
from kernels.engines.emulator.comparison import Check, compare, expected, parse
from kernels.model.program import RuleError
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every

VALUES = {
    f"arg{n}": arguments.parse(text)
    for n, text in enumerate(["f32:4x8:arange", "f32:8x3:ones", "f32:4x3:empty", "i32:8"])
}
BEFORE = {
    "arg0": np.arange(32, dtype=np.float32).reshape(4, 8),
    "arg1": np.ones((8, 3), np.float32),
    "arg3": np.int32(8),
}
NONE = np.zeros((4, 3), bool)


def outcome(got: np.ndarray, want: np.ndarray, unwritten: np.ndarray | None = None) -> comparison.Compared:
    missing = np.zeros(got.shape, bool) if unwritten is None else unwritten
    return compare(Check("arg2", "x"), got, want, missing, lambda n: f", by {n}")


def test_the_empty_array_is_compared_if_none_is_named():
    assert parse("arg0 @ arg1", VALUES) == Check("arg2", "arg0 @ arg1")
    assert parse("arg0 = arg0 == 3", VALUES).name == "arg0"
    with pytest.raises(RuleError, match="arg3 is none; there are: arg0, arg1, arg2"):
        parse("arg3 = 1", VALUES)
    with pytest.raises(RuleError, match="0 arguments are empty arrays"):
        parse("arg0", {"arg0": VALUES["arg0"]})


def test_an_expression_is_computed_in_float64_of_what_was_there_before():
    want = expected(Check("arg2", "arg0 @ arg1 + arg3 // 3"), BEFORE)
    assert want.dtype == np.float64 and np.array_equal(want, BEFORE["arg0"] @ BEFORE["arg1"] + 2)
    assert expected(Check("arg2", "(lambda a: np.where(a > 3, a, 0))(arg0)"), BEFORE).sum() == sum(range(4, 32))
    assert expected(Check("arg2", "[max(row) for row in arg0]"), BEFORE).tolist() == [7, 15, 23, 31]


def test_whole_numbers_are_computed_in_64_bits():
    before = {"arg0": np.array([100, -128], np.int8), "arg1": np.array([7, 2**32 - 1], np.uint32)}
    for expression, want in (
        ("arg0 * 2", [200, -256]),
        ("arg0 @ arg0", 100**2 + 128**2),
        ("arg1 - arg1[1]", [8 - 2**32, 0]),
        ("2**(arg1 % 62)", [2**7, 2 ** ((2**32 - 1) % 62)]),
        ("arg1 & 5", [5, 5]),
    ):
        assert expected(Check("arg2", expression), before).tolist() == want, expression


@every(
    ("expression", "message"),
    [
        ("arg0 +", "no expression"),
        ("arg9 + 1", "does not know 'arg9'; it knows np, arg0"),
        ("arg0 @ arg0", "--check fails: ValueError"),
        ("__import__('os')", "does not know '__import__'"),
        ("np.load('x')", r"may not use \.load"),
        ("arg0.tofile('x')", r"may not use \.tofile"),
        ("arg0.__class__", r"may not use \.__class__"),
        ("(x := arg0)", "NamedExpr has no place"),
        ("f'{arg0}'", "JoinedStr has no place"),
        ("open('x')", "does not know 'open'"),
    ],
)
def test_what_is_wrong_with_an_expression_is_named(expression, message):
    with pytest.raises(RuleError, match=message):
        expected(Check("arg2", expression), BEFORE)


def test_another_shape_is_refused_and_a_number_is_for_all():
    with pytest.raises(RuleError, match=r"gives an array of \[2, 3\], arg2 has \[4, 3\]"):
        outcome(np.zeros((4, 3), np.float32), np.zeros((2, 3)))
    assert outcome(np.ones((4, 3), np.float32), np.array(1)).right
    assert outcome(np.ones((4, 3), np.float32), np.ones(12)).right


@pytest.mark.parametrize(
    ("dtype", "small", "large"), [(np.float64, 1e-13, 1e-9), (np.float32, 1e-6, 1e-3), (np.float16, 1e-3, 0.1)]
)
def test_the_tolerance_follows_the_type(dtype, small, large):
    want = np.linspace(-1, 1, 64)
    assert outcome((want * (1 + small)).astype(dtype), want).right
    assert not outcome((want * (1 + large)).astype(dtype), want).right


def test_complex_numbers_are_compared_as_such():
    want = np.exp(1j * np.arange(8))
    assert outcome(want.astype(np.complex64), want).right
    assert not outcome(want.astype(np.complex64), want.conj()).right
    assert expected(Check("arg2", "arg0 * 1j"), {"arg0": np.ones(3, np.complex64)}).tolist() == [1j, 1j, 1j]


def test_whole_numbers_must_be_equal_and_nan_and_infinity_too():
    assert not outcome(np.arange(5, dtype=np.int32), np.array([0, 1, 2, 3, 5])).right
    special = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    assert outcome(special, special.astype(np.float64)).right
    for n, other in enumerate([0, -np.inf, np.nan, np.nan]):
        changed = special.astype(np.float64)
        changed[n] = other
        assert outcome(special, changed).wrong.tolist() == [m == n for m in range(4)]


@pytest.mark.parametrize(
    ("select", "where"),
    [
        (np.s_[2], "row 2 of all columns"),
        (np.s_[:, 4:6], "all rows of columns 4 to 5"),
        (np.s_[3:5, 1:3], "rows 3 to 4 of columns 1 to 2"),
        (np.s_[4:], "all from element 32 on"),
        (np.s_[::2, 3], "3 rows, the first 0 of column 3"),
    ],
)
def test_a_pattern_is_named(select, where):
    got = np.zeros((6, 8), np.float32)
    got[select] = 1
    assert f"differ: {where}\n" in outcome(got, np.zeros((6, 8))).text


@given(st.sets(st.integers(0, 47), min_size=1))
def test_the_elements_that_differ_are_listed(wrong):
    got = np.zeros(48, np.float32)
    got[list(wrong)] = 2
    found = outcome(got, np.zeros(48))
    assert np.flatnonzero(found.wrong).tolist() == sorted(wrong)
    first = sorted(wrong)[0]
    assert found.text.startswith(f"wrong: {len(wrong)} of 48 elements of arg2 differ")
    assert f"arg2[{first}] is 2, expected 0, by {first}" in found.text
    assert len(found.text.splitlines()) == 1 + min(10, len(wrong))


def test_what_was_never_written_differs_even_if_its_bits_are_right():
    missing = NONE.copy()
    missing[1, 2] = True
    found = outcome(np.zeros((4, 3), np.float32), np.zeros((4, 3)), missing)
    assert not found.right and "arg2[1, 2] was never written, expected 0" in found.text


# -- with a kernel ------------------------------------------------------------------------------------------
KERNEL = """extern "C" __global__ void k(const short* x, short* y, int n) {
  __shared__ short s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  if (t < n) y[t] = 2 * s[t];
}"""


@pytest.fixture
def run(tmp_path):
    def emulate(source: str, *args: str, **more) -> user_kernel.Emulated:
        (tmp_path / "k.cu").write_text(source)
        return user_kernel.emulate(tmp_path / "k.cu", "k", more.pop("grid", (1, 1, 1)), (64, 1, 1), args, **more)

    return emulate


@needs_nvrtc
def test_notes_name_what_was_never_written_and_never_read(run):
    some = run(KERNEL, "i16:70:arange", "i16:64:empty", "i32:40", check="2 * arg0[:64]")
    unread, unwritten = (
        "6 of 70 elements of arg0 are never read, the first is arg0[64]",
        "24 of 64 elements of arg1 are never written",
    )
    assert unread in some.notes and any(note.startswith(unwritten) for note in some.notes)
    assert any(note.startswith("24 of 64 written words of s are never read, the first is s[") for note in some.notes)
    assert "k.cu:4 by block (0, 0, 0)" in " ".join(some.notes)
    assert not some.compared.right and "arg1[40] was never written" in some.compared.text
    whole = run(KERNEL, "i16:64:arange", "i16:64:empty", "i32:64", check="2 * arg0")
    assert whole.notes == () and whole.compared.right


@needs_nvrtc
def test_notes_name_what_a_second_thread_wrote_over(run):
    source = """extern "C" __global__ void k(int* y, int* sum) {
  int t = threadIdx.x; if (t < 32) y[t] = 1; __syncthreads(); if (t >= 32 && t < 40) y[t - 32] = 2; atomicAdd(sum, t);
}"""
    (note,) = run(source, "i32:32:empty", "i32:1:zeros").notes
    assert note == "8 of 32 elements of arg0 are written by two threads and never read, the first is arg0[0]"


@needs_nvrtc
@pytest.mark.parametrize(("factor", "code"), [(2, 0), (3, 1)])
def test_the_command_prints_the_outcome_and_ends_with_it(tmp_path, capsys, factor, code):
    (tmp_path / "k.cu").write_text(KERNEL)
    arguments = ["--arg", "i16:64:arange", "--arg", "i16:64:empty", "--arg", "i32:64", "--check", f"{factor} * arg0"]
    assert main(["emulate", str(tmp_path / "k.cu"), "k", "--grid", "1", "--block", "64", *arguments]) == code
    assert ("right: arg1 is" if code == 0 else "wrong: 63 of 64 elements of arg1") in capsys.readouterr().out


@needs_nvrtc
def test_an_element_names_the_thread_that_wrote_it(run):
    source = 'extern "C" __global__ void k(float* y) { int i = blockIdx.x * 64 + threadIdx.x; y[i] = i == 70 ? 1 : 0; }'
    found = run(source, "f32:128:empty", grid=(2, 1, 1), check="0 * np.arange(128)").compared
    assert "arg0[70] is 1, expected 0, written by thread (6, 0, 0) of block (1, 0, 0)" in found.text


@needs_nvrtc
def test_what_depends_on_the_order_of_the_warps_is_a_warning(run):
    last = 'extern "C" __global__ void k(int* y) { atomicExch(y, threadIdx.x / 32 + 1); }'
    (warning,) = run(last, "i32:2:zeros").warnings
    assert warning.startswith(
        "1 of 2 elements of arg0 depend on the order of the warps, the first is arg0[0]: 2, with the warps"
    )
    assert run(last, "i32:2:zeros", order="reversed").warnings == ()
    sums = 'extern "C" __global__ void k(const float* x, float* y) { atomicAdd(y, x[threadIdx.x]); }'
    assert run(sums, "f32:64:random", "f32:1:zeros").warnings == ()  # its last digits do


ONE_THREAD = """extern "C" __global__ void k(const int* in, int* out) {
  __shared__ int total; int t = threadIdx.x, sum = 0;
  if (t == 0) total = 0;
  for (int i = 0; i < 4; ++i) {
    if (t == 0) total += in[i];
    __syncthreads();
    if (ALSO) sum += total;
  }
  if (t == 0) *out = sum;
}"""
UNUSED = """extern "C" __global__ void k(int use, const int* in, int* out) {
  __shared__ int bias;
  if (use && threadIdx.x == 0) bias = in[0];
  __syncthreads();
  out[threadIdx.x] = CONDITION ? bias : 0;
}"""


@needs_nvrtc
def test_a_load_that_the_compiler_moved_before_its_condition_is_no_race(run):
    arrays = "i32:4:arange", "i32:1:empty"
    alone = run(ONE_THREAD.replace("ALSO", "t == 0"), *arrays, check="arg1 = np.array([10])")
    assert alone.races == alone.warnings == () and alone.compared.right
    assert len(run(ONE_THREAD.replace("ALSO", "t < 40"), *arrays).races) == 1


@needs_nvrtc
def test_a_load_that_the_compiler_moved_before_its_condition_reads_nothing(run):
    found = run(UNUSED.replace("CONDITION", "use"), "i32:0", "i32:1:zeros", "i32:64:empty", check="arg2 = np.zeros(64)")
    assert found.warnings == () and found.compared.right
    assert any("All counts are those of code that was not" in note for note in found.notes)
    with pytest.raises(RuleError, match=r"k.cu:5: read at bias\[0\] in shared memory, which was never written"):
        run(UNUSED.replace("CONDITION", "threadIdx.x < 9"), "i32:0", "i32:1:zeros", "i32:64:empty")


RING = """extern "C" __global__ void k(volatile int* sync, int* out) {
  int* slot = (int*)sync + 2;
  if (threadIdx.x) return;
#pragma unroll 1
  for (int i = 0; i < 8; ++i)
    if (blockIdx.x == 0) {
      while (i - sync[1] MORE_THAN);
      __threadfence(); slot[i & 1] = i + 1; __threadfence(); sync[0] = i + 1;
    } else {
      while (sync[0] <= i);
      __threadfence(); out[i] = slot[i & 1]; __threadfence(); sync[1] = i + 1;
    }
}"""
CLAIM = """extern "C" __global__ void k(int* owner, int* mine) {
  if (threadIdx.x == 0) {
    bool free = atomicAdd(owner, 0) == 0;
    if (free) atomicExch(owner, 1 + blockIdx.x);
    mine[blockIdx.x] = free;
  }
}"""


@needs_nvrtc
@pytest.mark.parametrize(("more_than", "wrong"), [("> 1", False), ("> 2", True)])
def test_a_ring_between_blocks_whose_writer_may_be_one_turn_ahead(run, more_than, wrong):
    source, arrays = RING.replace("MORE_THAN", more_than), ("i32:4:zeros", "i32:8:empty")
    found = run(source, *arrays, grid=(2, 1, 1), check="arg1 = np.arange(8) + 1")
    assert wrong == bool(found.races or found.warnings or not found.compared.right)


@needs_nvrtc
def test_blocks_that_read_before_they_write_also_run_one_after_the_other(run):
    (warning,) = run(CLAIM, "i32:1:zeros", "i32:2:empty", grid=(2, 1, 1), check="arg1 = np.ones(2)").warnings
    assert "of arg1 depend on the order" in warning and "with one block after the other 0" in warning


@needs_nvrtc
def test_what_depends_on_the_order_beside_a_right_output_is_a_note(run):
    source = """extern "C" __global__ void k(int* places, int* count) { places[atomicAdd(count, 1)] = threadIdx.x; }"""
    found = run(source, "i32:64:empty", "i32:1:zeros", check="arg1 = np.array([64])")
    assert found.warnings == () and any("arg0 depend on the order" in note for note in found.notes)
    assert any("arg0 depend on the order" in line for line in run(source, "i32:64:empty", "i32:1:zeros").warnings)


SHUFFLE = """extern "C" __global__ void k(int* y) {{
  int t = threadIdx.x, v = 1000 + t;
  if (t < 16) {{ v += __shfl_{}; y[t] = v; }}
}}"""


@needs_nvrtc
@pytest.mark.parametrize(
    ("shuffle", "lanes"),
    [
        ("down_sync(0xffff, v, 8)", (8, 16)),
        ("xor_sync(0xffff, v, 16)", (0, 16)),
        ("sync(0xffff, v, 20 + t % 2)", (0, 20)),
        ("down_sync(0xffff, v, 8, 16)", None),
        ("xor_sync(0xffff, v, 8)", None),
        ("up_sync(0xffff, v, 4)", None),
    ],
)
def test_a_value_of_a_lane_that_takes_no_part_in_a_shuffle_is_undefined(run, shuffle, lanes):
    warnings = run(SHUFFLE.format(shuffle), "i32:16:empty").warnings
    if lanes is None:
        assert warnings == ()
        return
    depends, undefined = warnings
    assert "elements of arg0 depend on the order" in depends
    assert "k.cu:3: lane {} reads a value of lane {}, which does not take part".format(*lanes) in undefined


@needs_nvrtc
def test_an_undefined_value_that_reaches_no_array_is_no_warning(run):
    source = SHUFFLE.format("down_sync(0xffff, v, 8)").replace("y[t] = v;", "if (t == 0) y[0] = v;")
    assert run(source, "i32:1:empty").warnings == ()


LOOK_BACK = """extern "C" __global__ void k(const int* x, int* y, volatile int* state, volatile int* sums, volatile int* all) {
  int b = blockIdx.x, before = 0, s;
  if (threadIdx.x > 0) return;
  sums[b] = x[b];
  __threadfence();
  state[b] = 1;
  for (int j = b - 1; j >= 0; --j) {
    while ((s = state[j]) == 0);
    __threadfence();
    if (s == 2) { before += all[j]; break; }
    before += sums[j];
  }
  all[b] = before + x[b];
  __threadfence();
  state[b] = 2;
  y[b] = before;
}"""


@needs_nvrtc
@pytest.mark.parametrize(
    ("old", "new", "order"),
    [
        ("", "", ""),
        ("before += all[j]", "before += all[j] - sums[j]", "one block after the other"),
        ("before += sums[j];", "before += sums[j] + (b == 7 && j == 3);", "depend on the order"),
    ],
)
def test_blocks_that_wait_for_each_other_also_run_one_after_the_other(run, old, new, order):
    arrays = [f"i32:9:{fill}" for fill in ("arange", "empty", "zeros", "zeros", "zeros")]
    warnings = run(LOOK_BACK.replace(old, new), *arrays, grid=(9, 1, 1)).warnings
    assert bool(warnings) == bool(order) and all("elements of" not in line or order in line for line in warnings)
    sums = "np.cumsum(arg0) - arg0"
    right = run(LOOK_BACK, *arrays, grid=(9, 1, 1), check=f"arg1 = {sums}", order="blocks")
    assert right.compared.right and not right.races


@pytest.mark.parametrize(
    ("text", "order"),
    [("blocks", "blocks"), ("forward", "forward"), ("reversed", "reversed"), ("random", 0), ("random:7", 7)],
)
def test_orders(text, order):
    assert user_kernel.order_of(text) == order


@pytest.mark.parametrize("text", ["", "backwards", "random:x", "random:-1"])
def test_an_unknown_order_is_refused(text):
    with pytest.raises(RuleError, match="--order is forward, reversed, blocks, random or random:SEED"):
        user_kernel.order_of(text)
