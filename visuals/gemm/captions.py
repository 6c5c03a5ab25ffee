"""Captions of the steps of a GEMM scene: one template for each kind of step (gemm_plan.START and on)."""

from __future__ import annotations

from kernels.gemm.shape import GemmShape
from visuals.gemm.plan import Plan

A, B, C = "[A](input)", "[B](filter)", "[C](output)"
TILE_A, TILE_B = "[tile_a](input)", "[tile_b](filter)"


def templates(s: GemmShape, plan: Plan) -> tuple[str, ...]:
    owner, owners = plan.owner, f"{plan.owner}s"
    single = plan.TM * plan.TN == 1
    registers = "one [sum](output)" if single else f"{plan.TM} × {plan.TN} [sums](output)"
    its_sums = "its [sum](output)" if single else f"its {plan.TM * plan.TN:,} [sums](output)"
    return (
        f"Block {{0}} of {{1}} computes rows {{2}} to {{3}}, columns {{4}} to {{5}} of {C}. Each of its {len(plan.rows):,} "
        f"{owners} keeps {registers} in registers, now 0. We follow {owner} 0.",
        _load(s, plan, "columns", "rows", A, plan.BN // plan.TN),
        _load(s, plan, "rows", "columns", B, plan.BM // plan.TM),
        _multiply(plan),
        "The loop goes on in the same way to k = {0}: {1} more terms of each sum, not shown one by one.",
        f"{owner.capitalize()} 0 stores {its_sums}{_scaled(s)} to {C}.",
        f"Warp {{0}} stores its [sums](output): {{1}} cells of {C}.",
        f"The other {{0}} warps of the block store theirs: {{1}} cells of {C}.",
        f"The other {{0}} blocks did the same at the same time, on other SMs: {C} is whole.",
    )


def _load(s: GemmShape, plan: Plan, along: str, across: str, matrix: str, times: int) -> str:
    is_padded = s.K % plan.BK or s.M % plan.BM or s.N % plan.BN
    padding = "What sticks out of the matrix becomes zeros."
    return (
        f"Tile {{0}} of {{1}}: {along} {{2}} to {{3}} of the block's {across} of {matrix} go to shared memory, {{4}} values. "
        f"Each is read once from HBM by this block and then {times} times from shared memory."
        + (f" {padding}" if is_padded else "")
        + (" The copy runs while earlier tiles are multiplied." if plan.stages > 1 else "")
    )


def _multiply(plan: Plan) -> str:
    TM, TN, depth = plan.TM, plan.TN, plan.depth
    if not plan.As:
        return (
            f"k = {{0}}: thread 0 reads {{2}} from {A} and {{3}} from {B} in global memory and adds their product; its "
            f"[sum](output) is now {{4}}. The lanes of its warp ask for {{5}} values of {A} and {{6}} of {B}."
        )
    if plan.owner == "warp":
        return (
            f"k = {{0}} to {{1}}: warp 0 brings {TM} × {depth} values of {TILE_A} and {depth} × {TN} of {TILE_B} into its lanes' "
            f"registers. The tensor cores add their product to its [sums](output): {TM * TN * depth:,} multiply-adds for "
            f"{(TM + TN) * depth:,} reads."
        )
    if depth > 1:
        return (
            f"k = {{0}} to {{1}}: thread 0 reads {TM} registers of {TILE_A} and {TN} of {TILE_B}, {depth} values in each. Each "
            f"__dp4a makes {depth} multiply-adds of a pair: {TM * TN * depth:,} in all, for {(TM + TN) * depth} values read."
        )
    if TM * TN == 1:
        return (
            f"k = {{0}}: thread 0 reads {{2}} from {TILE_A} and {{3}} from {TILE_B} and adds their product; its [sum](output) is now "
            "{4}. One multiply-add for 2 reads of shared memory."
        )
    return (
        f"k = {{0}}: thread 0 reads {TM} values of {TILE_A} and {TN} of {TILE_B} from shared memory and multiplies all pairs: "
        f"{TM * TN} multiply-adds for {TM + TN} reads."
    )


def _scaled(s: GemmShape) -> str:
    """Returns the words about alpha and beta; "" if alpha is 1 and beta is 0."""
    alpha = f", each times {s.alpha:g}" if s.alpha != 1 else ""
    return (
        f"{alpha}{', ' if alpha else ', each '}plus {s.beta:g} times C0,"
        if s.beta
        else f"{alpha},"
        if alpha
        else ""
    )
