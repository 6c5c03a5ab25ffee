"""Tiles, threads and shared-memory traffic of each rung of flash attention. The tile sizes are those of kernels/attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.attention import ladder, registers
from kernels.attention import tensor_cores as tensor
from kernels.attention.shape import SelfAttentionShape
from kernels.model.dtypes import ELEMENT_BYTES
from visuals.scene.requests import WORD


@dataclass(frozen=True)
class Plan:
    """One rung at given tile sizes. `lanes` share a row of a tile. Shared memory contains `stages` tiles. `halves`: "" or the 16-bit type of
    Q, K, V, O, and of P in the product."""

    rung: str
    file: str
    Br: int
    Bc: int
    DP: int
    lanes: int
    threads: int
    traffic: Mapping[str, int]  # bytes of shared memory by kind of step, of all threads
    stages: int = 1
    halves: str = ""

    @property
    def word(self) -> int:
        """Bytes of an element of Q, K, V and O."""
        return ELEMENT_BYTES[self.halves or "fp32"]

    def visited(self, s: SelfAttentionShape, block: int) -> int:
        """Returns the number of tiles of keys that a block visits, as the kernels' `end`."""
        last = block * self.Br + self.Br - 1
        return -(-(last + 1 if s.causal and last < s.N else s.N) // self.Bc)


def plan_of(s: SelfAttentionShape, rung: str, tiles: Mapping[str, int]) -> Plan:
    """Returns the plan of a rung at a shape. tiles: all its tile sizes."""
    builders = {"attention/flash": _flash, "attention/flash-registers": _registers, "attention/flash-mma": _mma}
    return builders[rung](s, rung, tiles)


def _flash(s: SelfAttentionShape, rung: str, tiles: Mapping[str, int]) -> Plan:
    Br, Bc, DP = tiles["Br"], tiles["Bc"], ladder.flash_padded(s, tiles)
    traffic = {
        "start": Br * DP,
        "K": Bc * DP,
        "V": Bc * DP,
        "scores": 2 * Br * Bc * DP,
        "P": Br * Bc,
        "O": Br * Bc * Bc * (1 + DP // Bc),
    }
    return Plan(rung, "attention/04_flash.cu", Br, Bc, DP, Bc, Br * Bc, _bytes(traffic, WORD))


def _registers(s: SelfAttentionShape, rung: str, tiles: Mapping[str, int]) -> Plan:
    Br, Bc, defines = tiles["Br"], tiles["Bc"], registers.defines(s, tiles)
    DP, TM, threads, lanes = (defines["DP"], defines["TM"], registers.threads(s, tiles), registers.LANES_ACROSS)
    traffic = {
        "start": Br * DP,
        "K": Bc * DP,
        "V": Bc * DP,
        "scores": threads * (TM + Bc // lanes) * DP,
        "P": Br * Bc,
        "O": threads * (TM + DP // lanes) * Bc,
    }
    file = "attention/05_flash_registers.cu"
    return Plan(rung, file, Br, Bc, DP, lanes, threads, _bytes(traffic, WORD))


def _mma(s: SelfAttentionShape, rung: str, tiles: Mapping[str, int]) -> Plan:
    Br, Bc, DP, WM = tiles["Br"], tiles["Bc"], tensor.padded(s), tensor.warp_rows(s, tiles)
    q_in_registers = (
        WM * (Bc + DP) // 32 + WM * DP // 64 <= 160
    )  # Q's fragments stay in registers: HELD of flash_mma.cuh
    warps = Br // WM
    traffic = {
        "start": Br * DP * (2 if q_in_registers else 1),
        "K": Bc * DP,
        "V": Bc * DP,
        "scores": warps * Bc * DP + (0 if q_in_registers else Br * DP),
        "O": warps * Bc * DP,
    }
    file, threads = "attention/06_flash_mma.cu", tensor.threads(s, tiles)
    return Plan(rung, file, Br, Bc, DP, 4, threads, _bytes(traffic, 2), stages=tiles["STAGES"], halves=s.dtype)


def _bytes(elements: Mapping[str, int], each: int) -> dict[str, int]:
    return {kind: each * count for kind, count in elements.items()}
