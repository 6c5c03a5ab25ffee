"""What is known of the kernel on the stage at one shape: rows of its ladder, predicted bytes, counts. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic

from kernels.model.program import INPUT, OUTPUT, WORKSPACE
from kernels.model.row import Row
from kernels.model.rung import Ladder, Rung
from kernels.model.shape import S
from visuals.charts import roofline

Totals = Mapping[str, float]  # of the emulator's counters


@dataclass(frozen=True)
class Evidence(Generic[S]):
    """The rows at one shape, by rung name, and what a formula predicts. `kind`: "recorded" or "measured"."""

    ladder: Ladder
    rung: Rung  # on the stage
    shape: S
    shape_text: str  # as the strip names it: "4,096 × 4,096 × 4,096"
    tiles: Mapping[str, int]
    rows: Mapping[str, Row] = field(default_factory=dict)
    kind: str = "recorded"
    stale: bool = False  # the rows are of other settings
    totals: Totals | None = None  # counted at this shape; None if it was not
    counting: str = ""  # why there are no counts, or how far they are
    hides_fastest: bool = False  # whether our fastest row was left out, as one of a later chapter
    not_here: str = ""  # why the engine of Run does not run this kernel

    @property
    def row(self) -> Row | None:
        """Returns the row of the kernel on the stage."""
        return self.rows.get(self.rung.name)

    @property
    def timed(self) -> Row:
        """Returns the row of the kernel on the stage, where it is known that it has one."""
        return self.rows[self.rung.name]

    @property
    def title(self) -> str:
        return self.rung.title_on(self.row["engine"] if self.row else "cuda")

    def predicted_bytes(self) -> dict[str, int | None]:
        """Returns the bytes of inputs, output and workspace that the program allocates; None where only a library knows."""
        program = self.rung.build(self.shape, {**self.rung.default_tiles, **self.tiles})
        sizes: dict[str, int | None] = {
            role: sum(buffer.nbytes for buffer in program.of_role(role)) for role in (INPUT, OUTPUT, WORKSPACE)
        }
        if self.rung.cost(self.shape, program).workspace_bytes is None:
            sizes[WORKSPACE] = None
        return sizes

    def roof(self) -> roofline.Roof | None:
        """Returns the ceilings of the device of the row."""
        return roofline.roof_of(self.row, self.kind) if self.row else None
