"""Machine code and NumPy give equal bits and equal counters."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines.emulator.compiler.compile import compile_ptx
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import Options, Run, device_memory, launch
from kernels.engines.emulator.native import engine, operations
from kernels.engines.emulator.native.plan import Setting, plan_of
from kernels.engines.emulator.operations.dtypes import DTYPES
from kernels.engines.emulator.ptx.kernel import type_bytes
from kernels.engines.emulator.ptx.parse import parse
from tests.helpers.emulated import emulate, needs_nvrtc

pytest.importorskip("llvmlite")
TYPES = ("b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64", "pred")
REGISTERS = {"pred": "%p", 2: "%h", 4: "%r", 8: "%d", "f32": "%f", "f64": "%g"}
DECLARED = {"%p": "pred", "%h": "b16", "%r": "b32", "%d": "b64", "%f": "f32", "%g": "f64"}


def candidates() -> list[str]:
    """Returns opcodes that may have a handler."""
    two = (
        "add",
        "sub",
        "mul",
        "div",
        "rem",
        "min",
        "max",
        "and",
        "or",
        "xor",
        "shl",
        "shr",
        "neg",
        "abs",
        "not",
        "mov",
        "popc",
        "clz",
        "brev",
        "bfe",
    )
    out = [f"{base}.{type_}" for base in two for type_ in TYPES]
    out += [f"{base}.{form}.{type_}" for base in ("mul", "mad") for form in ("lo", "hi", "wide") for type_ in TYPES]
    out += [
        f"{base}.rn.{type_}" for base in ("add", "sub", "mul", "div", "fma", "sqrt", "rcp") for type_ in ("f32", "f64")
    ]
    compared = ("eq", "ne", "lt", "le", "gt", "ge", "lo", "hs", "equ", "neu", "ltu", "geu", "num", "nan")
    out += [f"setp.{op}.{type_}" for op in compared for type_ in TYPES]
    out += [
        f"setp.{op}.{how}.{type_}" for op in ("lt", "ne") for how in ("and", "or", "xor") for type_ in ("s32", "f32")
    ]
    out += [f"selp.{type_}" for type_ in TYPES]
    out += [f"shf.{side}.{form}.b32" for side in "lr" for form in ("wrap", "clamp")]
    pairs = itertools.permutations(TYPES, 2)
    out += [f"cvt{mode}.{to}.{from_}" for mode in ("", ".rn", ".rzi") for to, from_ in pairs]
    return [opcode for opcode in out if operations.operation(tuple(opcode.split("."))) is not None]


def register(type_: str, n: int) -> str:
    return f"{REGISTERS.get(type_) or REGISTERS[type_bytes(type_)]}{n}"


def edge_values(type_: str) -> np.ndarray:
    """Returns 64 values of a type: edges and random bits."""
    dtype, rng = np.dtype(DTYPES[type_]), np.random.default_rng(type_bytes(type_))
    if type_ == "pred":
        return rng.integers(0, 2, 64).astype(np.uint8)
    if dtype.kind == "f":
        info = np.finfo(dtype)
        edges = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            2.5,
            np.inf,
            -np.inf,
            np.nan,
            info.max,
            info.tiny,
            info.smallest_subnormal,
            2.0**31,
            -(2.0**31),
            2.0**32,
        ]
        return np.concatenate([edges, rng.normal(0, 100, 64 - len(edges))]).astype(dtype)
    info = np.iinfo(dtype)
    edges = [0, 1, 2, 3, 31, 32, 33, 63, 64, info.max, info.min, info.max - 1, info.min + 1]
    rest = rng.integers(info.min, info.max, 64 - len(edges), dtype=dtype, endpoint=True)
    return np.concatenate([np.array(edges, dtype), rest])


def kernel_of(opcode: str) -> str:
    """Returns PTX that executes an opcode on the values of its operands, one a thread; every third thread does not."""
    op = operations.operation(tuple(opcode.split(".")))
    assert op is not None
    lines = ["mov.u32 %r90, %tid.x;", "rem.u32 %r91, %r90, 3;", "setp.ne.u32 %p90, %r91, 0;"]
    for n, type_ in enumerate(op.types):
        width, to = type_bytes(type_), register(type_, n)
        lines += [f"ld.param.u64 %d9{n}, [p{n}];", f"mad.wide.u32 %d9{n}, %r90, {width}, %d9{n};"]
        if type_ == "pred":
            lines += [f"ld.global.u8 %h8{n}, [%d9{n}];", f"setp.ne.u16 {to}, %h8{n}, 0;"]
        else:
            lines += [f"ld.global.b{8 * width} {to}, [%d9{n}];"]
    operands = ", ".join(register(type_, n) for n, type_ in enumerate(op.types))
    lines += [f"@%p90 {opcode} {operands};"]
    out = register(op.types[0], 0)
    if op.types[0] == "pred":
        lines += [f"selp.u16 %h88, 1, 0, {out};", "st.global.u8 [%d90], %h88;"]
    else:
        lines += [f"st.global.b{8 * type_bytes(op.types[0])} [%d90], {out};"]
    registers = "\n".join(f".reg .{type_} {name}<100>;" for name, type_ in DECLARED.items())
    params = ", ".join(f".param .u64 p{n}" for n in range(len(op.types)))
    body = "\n".join(lines)
    return f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k({params})\n{{\n{registers}\n{body}\nret;\n}}\n"


def outcome(opcode: str, *, machine_code: bool, **options) -> tuple[np.ndarray, Run]:
    op = operations.operation(tuple(opcode.split(".")))
    assert op is not None
    arrays = {f"a{n}": np.roll(edge_values(type_), 7 * n) for n, type_ in enumerate(op.types)}
    memory = device_memory(arrays, list(arrays))
    run = launch(
        kernel_of(opcode),
        "k",
        (1, 1, 1),
        (64, 1, 1),
        list(arrays),
        memory,
        options=Options(machine_code=machine_code, **options),
    )
    return memory.array("a0"), run


@pytest.mark.parametrize("base", sorted({opcode.partition(".")[0] for opcode in candidates()}))
def test_every_operation_equals_numpys(base):
    wrong = []
    for opcode in (o for o in candidates() if o.partition(".")[0] == base):
        (fast, run), (slow, other) = (outcome(opcode, machine_code=on) for on in (True, False))
        equal = np.array_equal(fast, slow, equal_nan=fast.dtype.kind == "f")
        signs = fast.dtype.kind != "f" or np.array_equal(
            np.signbit(fast) & ~np.isnan(fast), np.signbit(slow) & ~np.isnan(slow)
        )
        if not (equal and signs and run.counted.total == other.counted.total):
            wrong.append((opcode, [(a, b) for a, b in zip(fast.tolist(), slow.tolist(), strict=True) if a != b][:3]))
    assert not wrong


def test_the_first_nan_and_numbers_that_wrap_are_those_of_numpy():
    opcodes = [
        o
        for o in candidates()
        if o.startswith(("add.", "mul.", "fma.rn.f32", "mad.lo.s32", "div.rn.f", "cvt.f32", "shl.b32"))
    ]
    for opcode in opcodes:
        found = []
        for on in (True, False):
            _, run = outcome(opcode, machine_code=on, races=True, numbers=True)
            assert run.ended.first_nan is not None and run.ended.overflow is not None
            found.append((run.ended.first_nan.found, run.ended.overflow.found))
        assert found[0] == found[1], opcode


def test_operations_are_handled():
    """Without this the comparison above compares NumPy with itself."""
    for opcode in candidates():
        kernel = parse(kernel_of(opcode), "k")
        plan = plan_of(kernel, Setting(counted=True, numpy_accesses=frozenset(), numpy_writes=frozenset(), arrays=()))
        at = next(pc for pc, i in enumerate(kernel.code) if i.opcode == opcode and i.guard)
        assert at in plan.handled, opcode


COPIES = """
struct alignas(%(align)d) T { %(word)s part[%(parts)d]; };
extern "C" __global__ void k(T* out, const T* in, const int* from, const int* to, int active) {
  __shared__ T tile[64];
  T own[4];
  int t = threadIdx.x;
  tile[t] = in[t];
  for (int n = 0; n < 4; ++n) own[n] = in[(t + n) & 63];
  __syncthreads();
  if (t %% 32 < active) {
    out[to[t]] = in[from[t]];
    out[64 + t] = tile[from[t]];
    out[192 + t] = own[from[t] & 3];
  }
  __syncthreads();
  if (t %% 32 < active) tile[to[t]] = in[t];
  __syncthreads();
  out[128 + t] = tile[t];
}
"""
WORDS = {"char": np.uint8, "short": np.uint16, "int": np.uint32, "long long": np.uint64}
ELEMENTS = [("char", 1), ("short", 1), ("int", 1), ("long long", 1), ("int", 2), ("int", 4), ("long long", 2)]
places = st.one_of(
    st.permutations(range(64)),
    st.integers(0, 63).map(lambda n: [n] * 64),
    st.integers(1, 32).map(lambda stride: [stride * t % 64 for t in range(64)]),
    st.lists(st.integers(0, 63), min_size=64, max_size=64),
)


@needs_nvrtc
@settings(max_examples=40)
@given(element=st.sampled_from(ELEMENTS), source=places, target=places, active=st.integers(1, 32))
def test_accesses_equal_numpys(element, source, target, active):
    word, parts = element
    dtype = np.dtype(WORDS[word])
    text = COPIES % {"align": dtype.itemsize * parts, "word": word, "parts": parts}
    values = np.random.default_rng(1).integers(0, 100, (64, parts)).astype(dtype)
    inputs = {"out": np.zeros((256, parts), dtype), "in": values, "from": np.int32(source), "to": np.int32(target)}
    fast, slow = (
        emulate(text, inputs, args=[*inputs, np.int32(active)], block=64, machine_code=on) for on in (True, False)
    )
    np.testing.assert_array_equal(fast["out"], slow["out"])
    assert fast.counters.lines == slow.counters.lines


@needs_nvrtc
def test_far_accesses_are_counted_like_numpys():
    source = """extern "C" __global__ void k(float* out, const float* in, int stride) {
      extern __shared__ float tile[];
      int t = threadIdx.x;
      tile[t * stride] = in[t * stride * 9];
      out[t] = tile[t * stride] + in[t * t % 200 * stride];
    }"""
    inputs = {"in": np.arange(64 * 70 * 9, dtype=np.float32)}
    for stride in (1, 2, 3, 9, 17, 32, 33, 64, 70):
        fast, slow = (
            emulate(
                source,
                inputs,
                {"out": ((64,), np.float32)},
                args=["out", "in", np.int32(stride)],
                block=64,
                shared=4 * 64 * 70,
                machine_code=on,
            )
            for on in (True, False)
        )
        np.testing.assert_array_equal(fast["out"], slow["out"])
        assert fast.counters.lines == slow.counters.lines, stride


RACING = """
extern "C" __global__ void k(int* out, const int* in, const int* from, const int* to, int synced) {
  __shared__ int tile[64];
  int t = threadIdx.x;
  tile[t] = in[t];
  if (synced & 1) __syncthreads();
  int mine = tile[from[t]];
  if (synced & 2) __syncthreads(); else if (synced & 4) __syncwarp();
  tile[to[t]] = mine;
  __syncthreads();
  out[to[t]] = tile[t];
  out[64 + blockIdx.x * (synced & 8 ? 64 : 0) + t] = in[t];
}
"""


@needs_nvrtc
@settings(max_examples=60)
@given(source=places, target=places, synced=st.integers(0, 15))
def test_races_are_those_of_numpy(source, target, synced):
    inputs = {
        "out": np.zeros(256, np.int32),
        "in": np.arange(64, dtype=np.int32),
        "from": np.int32(source),
        "to": np.int32(target),
    }
    found, accessed = [], []
    for on in (True, False):
        memory = device_memory(inputs, list(inputs))
        run = launch(
            compile_ptx(RACING, "kernel.cu"),
            "k",
            (2, 1, 1),
            (64, 1, 1),
            [*inputs, np.int32(synced)],
            memory,
            options=Options(machine_code=on, races=True),
        )
        lines = run.ended.kernel.code
        pairs = {
            frozenset((lines[a].line, lines[b].line)) for races in run.ended.races.values() for a, b in races.found
        }
        found.append(pairs)
        races = run.ended.races
        of_shared = races["shared"].accessed(0, run.ended.shared.bytes.size, 4)
        accessed.append([*races["global"].accessed(0, memory.bytes.size // 4 * 4, 4), *of_shared])
    assert bool(found[0]) == bool(found[1])  # of several races of a word, the order decides which is found
    for fast, slow in zip(*accessed, strict=True):
        np.testing.assert_array_equal(fast, slow)


FAULTS = {
    "out of bounds": "out[i == 70 ? 1000 : i] = in[i];",
    "never written": "out[i] = in[i] + (i == 100 ? hole[3] : 0);",
    "misaligned": "out[i] = i == 33 ? *(const float*)((const char*)in + 2) : in[i];",
    "shared memory": "__shared__ float s[8]; s[threadIdx.x & 7] = in[i]; out[i] = i == 90 ? s[i] : s[0];",
}


@needs_nvrtc
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_the_same_message(name):
    source = f'extern "C" __global__ void k(float* out, const float* in, const float* hole) {{\nint i = blockIdx.x * blockDim.x + threadIdx.x;\n{FAULTS[name]}\n}}'
    arrays = {"in": np.ones(128, np.float32)}
    empty = {"out": ((128,), np.float32), "hole": ((8,), np.float32)}
    messages = []
    for on in (True, False):
        with pytest.raises(EmulatorError) as error:
            emulate(source, arrays, empty, args=["out", "in", "hole"], grid=2, block=64, machine_code=on)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


DIVERGENT = """
extern "C" __global__ void k(int* out, const int* in) {
  int t = threadIdx.x, sum = 0;
  if (in[t] == 0) { out[t] = -1; return; }
  for (int n = 0; n < in[t] % 9; ++n) {
    if (n & in[t]) sum += n; else if (n == 5) continue; else sum ^= in[(t + n) & 127];
    for (int k = t; k < in[t]; k += 7) { if (k == 90) break; sum = sum * 3 + k; }
  }
  out[t] = sum;
}
"""


@needs_nvrtc
@settings(max_examples=30)
@given(values=st.lists(st.integers(0, 100), min_size=128, max_size=128))
def test_diverging_threads_equal_numpys(values):
    inputs = {"out": np.zeros(128, np.int32), "in": np.int32(values)}
    fast, slow = (emulate(DIVERGENT, inputs, args=["out", "in"], block=128, machine_code=on) for on in (True, False))
    np.testing.assert_array_equal(fast["out"], slow["out"])
    assert fast.counters.lines == slow.counters.lines


def test_the_emulator_runs_where_llvm_is_missing():
    """As in a browser."""
    code = f"""
import sys
sys.modules["llvmlite"] = None
import numpy as np
from kernels.engines.emulator.launch import device_memory, launch
arrays = {{name: np.arange(64, dtype=np.int32) for name in ("a0", "a1", "a2")}}
memory = device_memory(arrays, list(arrays))
launch({kernel_of("add.s32")!r}, "k", (1, 1, 1), (64, 1, 1), list(arrays), memory)
print(memory.array("a0")[:4].tolist())
"""
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[0, 2, 4, 3]\n"
    )


@needs_nvrtc
def test_without_llvm_numpy_executes_everything(monkeypatch):
    monkeypatch.setattr(engine, "is_available", lambda: False)
    monkeypatch.setattr(engine.Native, "advance", lambda self, pending: pytest.fail("machine code ran"))
    out = emulate(
        'extern "C" __global__ void k(int* out) { out[threadIdx.x] = 3 * threadIdx.x; }', {}, {"out": ((32,), np.int32)}
    )
    np.testing.assert_array_equal(out["out"], 3 * np.arange(32))


@needs_nvrtc
def test_machine_code_is_read_from_the_cache(tmp_path, monkeypatch):
    from kernels.engines.emulator.native.library import Library

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    name = "a handler of this test"
    text = f'define i32 @"{name}"(i64* %r, i64 %w, i32 %m) {{ ret i32 0 }}'
    Library().add({name: lambda: text})
    files = [path.name for path in tmp_path.rglob("*.o")]
    assert sorted(files) == sorted([f"{name}.o", "base.o"])
    library = Library()
    library.add({name: lambda: pytest.fail("it was compiled again")})
    assert library.addresses[name]
    assert re.fullmatch(r"[0-9a-f]{16}", library._folder.name)
