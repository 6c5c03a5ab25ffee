"""Captions of the steps of a GEMM scene: one template for each kind of step (gemm_plan.START and on)."""

from __future__ import annotations

from kernels.gemm.shape import GemmShape
from kernels.i18n import tr, trn
from visuals.gemm.plan import Plan
from visuals.scene.scene import number


def templates(s: GemmShape, plan: Plan, block: tuple[int, int] = (0, 0)) -> tuple[str, ...]:
    """Returns the template of each kind of step of a block (x, y), in the order of the kinds."""
    load_A, load_B = _load_A(s, plan), _load_B(s, plan)
    first, ahead = (_first_copy(), _copy_ahead()) if plan.stages > 1 else ("", "")
    return (
        _start(s, plan, block),
        _joined(load_A, first),
        _joined(load_B, first),
        _multiply(plan),
        tr("The loop continues to k = {0}. Terms of each sum added in this step: {1}."),
        _joined(_store(plan), scaled(s)),
        tr("Warp {0} stores its [sums](output). Elements of [C](output): {1}."),
        tr("The other {0} warps of the block store their [sums](output). Elements of [C](output): {1}."),
        _others(s, plan),
        _joined(load_A, ahead),
        _joined(load_B, ahead),
        *_syncs(plan),
    )


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


# -- start -----------------------------------------------------------------------------------------
def _start(s: GemmShape, plan: Plan, block: tuple[int, int]) -> str:
    return _joined(
        tr("Block {0} computes rows {2} to {3} and columns {4} to {5} of [C](output)."),
        _outside(plan) if plan.As and plan.inside(s, block) != (plan.BM, plan.BN) else "",
        _owners(plan),
        tr("The picture follows warp 0.") if plan.owner == "warp" else tr("The picture follows thread 0."),
    )


def _outside(plan: Plan) -> str:
    return tr(
        "Its tile of {rows} × {cols} is larger than this part of [C](output). The rest is filled with zeros, and "
        "multiply-adds with zeros are counted.",
        rows=plan.BM,
        cols=plan.BN,
    )


def _owners(plan: Plan) -> str:
    count, size = len(plan.rows), {"rows": plan.TM, "cols": plan.TN}
    if plan.owner == "warp":
        return trn(
            "Its {n} warp keeps {rows} × {cols} [sums](output) in registers, all 0 so far.",
            "Each of its {n} warps keeps {rows} × {cols} [sums](output) in registers, all 0 so far.",
            count,
            **size,
        )
    if plan.TM * plan.TN == 1:
        return trn(
            "Its {n} thread keeps one [sum](output) in a register, now 0.",
            "Each of its {n} threads keeps one [sum](output) in a register, now 0.",
            count,
        )
    return trn(
        "Its {n} thread keeps {rows} × {cols} [sums](output) in registers, all 0 so far.",
        "Each of its {n} threads keeps {rows} × {cols} [sums](output) in registers, all 0 so far.",
        count,
        **size,
    )


# -- load ------------------------------------------------------------------------------------------
def _load_A(s: GemmShape, plan: Plan) -> str:
    return _joined(
        tr("Tile {0} of {1}: the block copies columns {2} to {3} of its rows of [A](input) to shared memory."),
        _reads(plan, plan.BN // plan.TN),
        _zeros() if s.K % plan.BK or s.M % plan.BM else "",
    )


def _load_B(s: GemmShape, plan: Plan) -> str:
    return _joined(
        tr("Tile {0} of {1}: the block copies rows {2} to {3} of its columns of [B](filter) to shared memory."),
        _reads(plan, plan.BM // plan.TM),
        _zeros() if s.K % plan.BK or s.N % plan.BN else "",
    )


def _reads(plan: Plan, readers: int) -> str:
    """Returns sentences on how often each value of a tile is read."""
    once = tr("Values copied: {4}. Each is read once from global memory.")
    if plan.owner == "warp":
        return _joined(
            once,
            trn("Then {n} warp reads it from shared memory.", "Then {n} warps read it from shared memory.", readers),
        )
    return _joined(
        once,
        trn("Then {n} thread reads it from shared memory.", "Then {n} threads read it from shared memory.", readers),
    )


def _zeros() -> str:
    return tr("Elements outside the matrix are loaded as zero.")


def _first_copy() -> str:
    return tr("The threads wait for this first copy, because no tile can be multiplied yet.")


def _copy_ahead() -> str:
    return tr("The copy runs while earlier tiles are multiplied.")


# -- waits and barriers ----------------------------------------------------------------------------
def _syncs(plan: Plan) -> tuple[str, ...]:
    """Returns the templates of gemm_plan.WAIT_FIRST to SPREAD."""
    wait = tr("Each thread waits until its own copies of tile {0} have arrived in shared memory.")
    complete = tr("Barrier: every thread of the block waits until all copies of tile {0} are complete.")
    read = tr(
        "Barrier: every thread waits until all threads have read tile {0}. Only then may new values overwrite it."
    )
    return (
        wait,
        _joined(complete, tr("A thread reads values that other threads have copied.")),
        wait,
        complete if plan.stages == 1 else _joined(complete, _overwrites(plan)),
        read,
        tr(
            "After the last tile only zeros are copied, and no thread reads them. Each thread still waits for its copies."
        ),
        tr("Barrier: every thread waits until all threads have loaded their last values of tile {1}."),
        tr("After the loop each thread waits until none of its copies is under way."),
        tr(
            "The warps write their [sums](output) to shared memory, over the tiles. Barrier: every thread waits until all [sums](output) are there."
        ),
    )


def _overwrites(plan: Plan) -> str:
    if plan.syncs.early:
        return tr("All threads have then also loaded their last values of tile {1}. Its buffer may be overwritten.")
    return tr("All threads have then also read tile {1}. Its buffer may be overwritten.")


# -- multiply --------------------------------------------------------------------------------------
def _multiply(plan: Plan) -> str:
    TM, TN, depth = plan.TM, plan.TN, plan.depth
    counts = {"products": f"{TM * TN * depth:,}", "values": f"{(TM + TN) * depth:,}"}
    if not plan.As:
        return tr(
            "k = {0}: thread 0 reads {2} from [A](input) and {3} from [B](filter) in global memory. It adds their "
            "product to its [sum](output). The [sum](output) is now {4}. Different values read by its warp: {5} of "
            "[A](input), {6} of [B](filter)."
        )
    if plan.owner == "warp":
        return tr(
            "k = {0} to {1}: warp 0 loads {rows} × {depth} values of [tile_a](input) and {depth} × {cols} values of "
            "[tile_b](filter) into registers. The tensor cores add the product to its [sums](output). That is "
            "{products} multiply-adds for {values} values.",
            rows=TM,
            cols=TN,
            depth=depth,
            **counts,
        )
    if depth > 1:
        return tr(
            "k = {0} to {1}: thread 0 reads {rows} registers of [tile_a](input) and {cols} of [tile_b](filter), each with "
            "{depth} values. One __dp4a instruction does {depth} multiply-adds. That is {products} multiply-adds for "
            "{values} values.",
            rows=TM,
            cols=TN,
            depth=depth,
            **counts,
        )
    if TM * TN == 1:
        return tr(
            "k = {0}: thread 0 reads {2} from [tile_a](input) and {3} from [tile_b](filter). It adds their product to its "
            "[sum](output). The [sum](output) is now {4}. That is one multiply-add for 2 reads of shared memory."
        )
    if plan.syncs.early:
        return tr(
            "k = {0}: thread 0 has {rows} values of [tile_a](input) and {cols} of [tile_b](filter) in registers, loaded one step "
            "ahead. It multiplies all pairs and adds the products to its [sums](output). That is {products} multiply-adds for "
            "{values} reads.",
            rows=TM,
            cols=TN,
            **counts,
        )
    return tr(
        "k = {0}: thread 0 reads {rows} values of [tile_a](input) and {cols} of [tile_b](filter) from shared memory. It "
        "multiplies all pairs and adds the products to its [sums](output). That is {products} multiply-adds for "
        "{values} reads.",
        rows=TM,
        cols=TN,
        **counts,
    )


def folded(plan: Plan) -> str:
    """Returns the template of several steps that add terms, shown as one: first and last term, the sum, multiply-adds,
    values read."""
    if plan.owner == "warp":
        return tr("k = {0} to {1}: warp 0 adds these terms in the same way. That is {3} multiply-adds for {4} values.")
    if plan.TM * plan.TN == 1:
        return tr(
            "k = {0} to {1}: thread 0 adds these terms to its [sum](output) in the same way. The [sum](output) is now {2}. "
            "That is {3} multiply-adds for {4} reads."
        )
    return tr(
        "k = {0} to {1}: thread 0 adds these terms to its [sums](output) in the same way. That is {3} multiply-adds for "
        "{4} reads."
    )


# -- store -----------------------------------------------------------------------------------------
def _store(plan: Plan) -> str:
    count = plan.TM * plan.TN
    if plan.owner == "warp":
        return trn(
            "Warp 0 stores its [sum](output) to [C](output).",
            "Warp 0 stores its {n} [sums](output) to [C](output).",
            count,
        )
    return trn(
        "Thread 0 stores its [sum](output) to [C](output).",
        "Thread 0 stores its {n} [sums](output) to [C](output).",
        count,
    )


def scaled(s: GemmShape) -> str:
    """Returns a sentence about alpha and beta; "" if alpha is 1 and beta is 0."""
    factors = {"alpha": number(s.alpha), "beta": number(s.beta)}
    if s.alpha != 1 and s.beta:
        return tr("Each stored value is {alpha} times the sum plus {beta} times C0.", **factors)
    if s.beta:
        return tr("Each stored value is the sum plus {beta} times C0.", **factors)
    return tr("Each stored value is {alpha} times the sum.", **factors) if s.alpha != 1 else ""


def _others(s: GemmShape, plan: Plan) -> str:
    across, down = plan.grid(s)
    return trn(
        "The other block computes its tile in the same way. [C](output) is complete.",
        "The other {n} blocks compute their tiles in the same way. [C](output) is complete.",
        across * down - 1,
    )
