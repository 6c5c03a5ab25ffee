"""Helpers for the tests of attention's scenes: inputs, a run in the emulator, the float64 reference."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from kernels.attention.reference import attention
from kernels.attention.shape import AttentionShape
from kernels.engines import emulator
from kernels.engines.emulator.launch import Options
from kernels.ladders import find
from kernels.model.dtypes import INPUT_DTYPE
from tests.helpers.shapes import attention_shapes
from visuals.attention.plan import Plan, plan_of
from visuals.attention.scene import attention_scene
from visuals.scene.scene import Scene

Arrays = dict[str, np.ndarray]
FLASH, REGISTERS, MMA = "attention/flash", "attention/flash-registers", "attention/flash-mma"
TILES = {
    "attention/naive": {"BLOCK": 8},
    "attention/blocked": {"TILE": 8},
    "attention/fused": {"BLOCK": 128},
    FLASH: {"Br": 4, "Bc": 8},
    REGISTERS: {"Br": 32, "Bc": 8},
    MMA: {"Br": 16, "Bc": 16, "WM": 16},
}


def random(s: AttentionShape, seed: int = 0) -> Arrays:
    """Returns random Q, K, V: float32 values that the shape's type represents exactly."""
    rng = np.random.default_rng(seed)
    dtype = INPUT_DTYPE[s.dtype]
    return {name: rng.normal(size=s.qkv_shape).astype(dtype).astype(np.float32) for name in "QKV"}


def emulated(s: AttentionShape, rung: str, tiles, inputs: Arrays, trace_block: int | None = None) -> emulator.Session:
    """Returns a session of the emulator that has executed a rung's whole program."""
    program = find(rung).build(s, find(rung).check(s, tiles))
    arrays = {name: array.astype(INPUT_DTYPE[s.dtype]) for name, array in inputs.items()}
    session = emulator.Session(program, arrays, Options(trace_block=trace_block))
    session.verify_run()
    return session


def stored(session: emulator.Session, name: str) -> np.ndarray:
    """Returns head 0 of a buffer, float32 [N, columns]; NaN where nothing was stored."""
    return session.memory.array(name)[0, 0].astype(np.float32)


def cut(s: AttentionShape, run: AttentionShape, inputs: Arrays) -> tuple[AttentionShape, Arrays]:
    """Returns the shape that a kernel runs at to be shown, and its inputs."""
    return run, {name: array[:1, :1, : run.N] for name, array in inputs.items()}


def reference(s: AttentionShape, inputs: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Returns (O, scale of its tolerance) of head 0, both float64 [N, d]."""
    ref, scale = attention(s.with_(B=1, H=1), **{name: array[:1, :1] for name, array in inputs.items()})
    return ref[0, 0], scale[0, 0]


def matrix(scene: Scene, name: str, t: int | None = None) -> np.ndarray:
    """Returns a tensor after step t, float32 [rows, cols]."""
    tensor = scene.tensor(name)
    return scene.cells(name, t).reshape(tensor.planes * tensor.rows, tensor.cols)


def part(scene: Scene, name: str, full: np.ndarray) -> np.ndarray:
    """Returns the part of a matrix that a tensor shows."""
    tensor = scene.tensor(name)
    _, row, col = tensor.origin
    return full[row : row + tensor.rows, col : col + tensor.cols]


def kinds(scene: Scene, *phrases: str) -> list[int]:
    """Returns the steps whose caption contains one of these words."""
    return [t for t in range(scene.steps) if any(phrase in scene.caption(t) for phrase in phrases)]


def highlighted_line(scene: Scene, t: int) -> str:
    """Returns the source line that step t highlights."""
    source, line = scene.source_at(t)
    return source.text.splitlines()[line - source.first]


def last_readings(scene: Scene) -> dict[str, int]:
    """Returns the last values of the readings, by the last part of their labels."""
    return {r.label.rpartition(": ")[2]: int(r.values[-1]) for r in scene.readings}


# -- flash attention ------------------------------------------------------------------------------
def scene_at(s: AttentionShape, rung: str, tiles, inputs) -> tuple[Scene, Plan]:
    return attention_scene(s, rung, tiles, inputs), plan_of(s, rung, find(rung).check(s, tiles))


@st.composite
def attention_cases(draw, rungs=(FLASH, REGISTERS, MMA), most: int = 40):
    rung = draw(st.sampled_from(rungs))
    s = draw(attention_shapes(most, 40, dtype="fp16" if rung == MMA else "fp32"))
    tiles = dict(TILES[rung])
    if rung == FLASH:
        tiles = {"Br": draw(st.sampled_from([4, 8, 16])), "Bc": draw(st.sampled_from([8, 16]))}
    return rung, tiles, s
