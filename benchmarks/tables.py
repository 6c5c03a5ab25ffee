"""Write the recorded table into README.md: python benchmarks/tables.py"""

from __future__ import annotations

from pathlib import Path

from kernels import records
from kernels.ladders import LADDERS
from kernels.presets import CONV_PRESETS
from visuals import figures

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- recorded: python benchmarks/tables.py -->", "<!-- end recorded -->"


def table() -> str:
    """Cold medians of every rung at its default tiles, and what im2col allocated, for every preset."""
    rungs = LADDERS["conv"].rungs
    first = records.recordings()[0]
    lines = [
        f"Recorded on an {first['device']} (driver {first['driver']}, CUDA {first['cuda']}, cuBLAS {first['cublas']}, "
        f"{first['date']}), FP32 without TF32, cold, median of n = {first['n']} (p20 to p80 in the file "
        "`kernels/records/recordings/nvidia-h200.jsonl`):",
        "",
        "| shape | " + " | ".join(r.title for r in rungs) + " | workspace of im2col |",
        "|---" * (len(rungs) + 2) + "|",
    ]
    for preset in CONV_PRESETS.values():
        rows = [records.recorded(r.name, preset.shape, r.default_tiles) for r in rungs]
        times = [figures.time_(row["median_ms"]) for row in rows]
        lines.append(
            f"| {preset.label} | " + " | ".join(times) + f" | {figures.bytes_(rows[1]['workspace_bytes'])} |"
        )
    return "\n".join(lines)


def main() -> None:
    text = README.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    README.write_text(f"{head}{BEGIN}\n{table()}\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
