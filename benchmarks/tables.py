"""Write the recorded tables into docs/measurements.md: python -m benchmarks.tables"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks import layers as layers_bench
from benchmarks.collectives import BY_FOUR, LAUNCHED
from benchmarks.gemm import LIBRARY
from benchmarks.report import tiles_text
from kernels import records, sources
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.collectives import cost
from kernels.collectives import gpus as collective_gpus
from kernels.collectives import recorded as collectives
from kernels.collectives.cost import Point
from kernels.collectives.kernels import KERNELS
from kernels.collectives.shape import ALL_REDUCE, ONE_SHOT, RING
from kernels.conv.presets import CONV_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS
from kernels.memory.shape import BanksShape
from kernels.model.program import Launch
from kernels.parallel import timeline as timelines
from kernels.parallel.plan import DATA, PIPELINES, Plan
from kernels.records import Gpu, copies, files, gpus, unsupported
from kernels.transfers import recorded as transfers
from kernels.transfers.scenarios import SCENARIOS
from visuals import units
from visuals.memory import charts as memory_charts
from visuals.parallel import recorded as parallel_steps
from visuals.training import recorded as training_steps

PAGE = Path(__file__).parents[1] / "docs" / "measurements.md"
SIDE = 4096
STAGES, BASE = (2, 3, 4, 5), "conv/cudnn-implicit-precomp-gemm"
STRIDES = (1, 2, 3, 4, 8, 16, 32)
MEGABYTE = 1_000_000
LARGE = 100_000_000  # bytes of a layer: more than the L2 cache holds
# Ladders whose time is arithmetic: no copy is their limit.
PRODUCTS = (
    "attention-lse",
    "attention-backward",
    "conv-dinput",
    "conv-dweight",
    "conv-transpose",
    "conv-fp16",
    "fusion-fp16",
    "linear",
    "linear-dinput",
    "linear-dweight",
)


def link(text: str, source: str) -> str:
    """Returns a Markdown link from PAGE to a source."""
    return f"[{text}](../{sources.file(source).relative_to(PAGE.parents[1])})"


def rungs() -> str:
    """Returns the rungs of a convolution: name, idea, and the sources of their launches at a 3x3 layer."""
    shape = CONV_PRESETS["resnet50-res3-3x3-n1"].shape
    lines = ["| rung | idea | CUDA C++ |", "|---|---|---|"]
    for rung in LADDERS["conv"].rungs:
        steps = rung.build(shape, rung.default_tiles).steps
        files = dict.fromkeys(step.source for step in steps if isinstance(step, Launch))
        links = ", ".join(link(s.partition("/")[2], s) for s in files)
        lines.append(f"| `{rung.name}` | {rung.idea} | {links} |")
    return "\n".join(lines)


def conv() -> str:
    """Returns cold medians of every rung of this project at its default tiles, and im2col's workspace, for every preset."""
    rungs = [r for r in LADDERS["conv"].rungs if r.library != "cuDNN"]
    presets = LADDERS["conv"].presets.values()
    rows_of = {p.label: [records.recorded(r.name, p.shape, r.default_tiles) for r in rungs] for p in presets}
    recorded = [row for rows in rows_of.values() for row in rows if row]
    file = files.path_of(records.shown("conv")).name
    first, dates = recorded[0], sorted({row["date"] for row in recorded})
    lines = [
        f"Recorded on an {first['device']} (driver {first['driver']}, CUDA {first['cuda']}, cuBLAS {first['cublas']}, "
        f"{' and '.join(dates)}). FP32 without TF32, cold. Each time is the median of up to 100 samples. p20 and p80 are in "
        f"[{file}](../kernels/records/recordings/{file}). An empty cell: a rule of the kernel forbids "
        "the shape. –: not recorded.",
        "",
        "| shape | " + " | ".join(r.title for r in rungs) + " | workspace of im2col |",
        "|---" * (len(rungs) + 2) + "|",
    ]
    for preset in presets:
        rows = rows_of[preset.label]
        if not any(rows):
            continue
        forbidden = [any(r.rules(preset.shape, r.default_tiles)) for r in rungs]
        times = [
            units.time_(row["median_ms"]) if row else "" if is_forbidden else "–"
            for row, is_forbidden in zip(rows, forbidden, strict=True)
        ]
        im2col = next((row for row in rows if row and row["rung"] == "conv/im2col-gemm"), None)
        workspace = units.bytes_(im2col["workspace_bytes"]) if im2col else ""
        lines.append(f"| {preset.label} | " + " | ".join(times) + f" | {workspace} |")
    return "\n".join(lines)


def algorithms() -> str:
    """Returns hot medians of every rung, ours and cuDNN's, at the 3x3 layers of ResNet-50's four stages, with workspace
    and error."""
    shapes = [CONV_PRESETS[f"resnet50-res{stage}-3x3-n32"].shape for stage in STAGES]
    rungs = LADDERS["conv"].rungs
    rows = {r.name: [records.recorded(r.name, s, r.default_tiles, "hot") for s in shapes] for r in rungs}
    lines = [
        f"ResNet-50's 3×3 layers at batch 32, {_on('conv')}, hot. All rungs ran in the same runs. Each was captured as a CUDA "
        "graph, so the time the processor takes to queue a library's call is not included. *Of cuDNN*: the speed as a share "
        f"of {rungs_title(BASE)}'s, geometric mean over the four layers. *Workspace*: at res2. *Error*: the largest "
        "relative L2 error of the four.",
        "",
        "| rung | " + " | ".join(f"res{stage}" for stage in STAGES) + " | of cuDNN | workspace | error |",
        "|---" * (len(STAGES) + 4) + "|",
    ]
    for rung in rungs:
        recorded_rows = rows[rung.name]
        if not all(recorded_rows):
            refused = any(unsupported.recorded(rung.name, s) for s in shapes)
            why = "not supported" if refused else "not recorded"
            lines.append(f"| `{rung.name}` | {why} |" + " |" * (len(STAGES) + 2))
            continue
        shares = [base["median_ms"] / row["median_ms"] for base, row in zip(rows[BASE], recorded_rows, strict=True)]
        mean = math.exp(sum(map(math.log, shares)) / len(shares))
        times = " | ".join(units.time_(row["median_ms"]) for row in recorded_rows)
        lines.append(
            f"| `{rung.name}` | {times} | {100 * mean:.3g} % | {units.bytes_(recorded_rows[0]['workspace_bytes'])} "
            f"| {max(row['error'] for row in recorded_rows):.1e} |"
        )
    return "\n".join(lines)


def _on(ladder: str) -> str:
    """Returns the GPU of a table: that of the first table, `conv`, or another one by its name."""
    gpu = records.shown(ladder)
    return "same device" if gpu == records.shown("conv") else f"recorded on an {gpu.device}"


DAYS = "{days}"  # in a table: what `_days` returns


def _days(rows: Iterable[Mapping]) -> str:
    """Returns a sentence on rows that were not measured on the day of most rows; "" if all are of one day."""
    by_day = defaultdict(list)
    for row in rows:
        by_day[row["date"]].append(f"`{row['rung'].partition('/')[2]}`")
    first, *others = sorted(by_day, key=lambda day: -len(by_day[day]))
    named = (f"{', '.join(dict.fromkeys(by_day[day]))} on {day}" for day in sorted(others))
    return f"Measured on {first}, but {'; '.join(named)}: in another run than the library." if others else ""


def rungs_title(name: str) -> str:
    return LADDERS["conv"].rung(name).title


def gemm() -> str:
    """Returns every rung at 4096 x 4096 x 4096 with its default tiles, compared with the library's of the same type: a table
    for each GPU."""
    return "\n\n".join(_gemm_on(gpu) for gpu in records.gpus_of("gemm"))


def _gemm_on(gpu: gpus.Gpu) -> str:
    shown = gpu == records.shown("gemm")
    apart = "uncoalesced and INT8, which ran in another" if shown else "INT8, which ran in another"
    lines = [
        f"M = N = K = {SIDE:,}, {_on('gemm') if shown else f'recorded on an {gpu.device}'}, cold. *Of the library*: the speed "
        f"as a share of cuBLAS on the same types. The samples of both were interleaved in one run, except for {apart}. INT8 is "
        "compared with cuBLAS FP32.",
        DAYS,
        "",
        "| rung | in, sums | tiles | median (p20 to p80, n) | TFLOP/s | of the library |",
        "|---|---|---|---|---|---|",
    ]
    shown_rows = []
    for dtype in ("fp32", "fp16", "bf16", "int8"):
        shape = GemmShape(SIDE, SIDE, SIDE, dtype=dtype)
        library = records.recorded(
            LIBRARY[dtype], GemmShape(SIDE, SIDE, SIDE) if dtype == "int8" else shape, {}, gpu=gpu
        )
        for rung in LADDERS["gemm"].rungs:
            if row := records.recorded(rung.name, shape, rung.default_tiles, gpu=gpu):
                lines.append(_gemm_line(rung, row, dtype, library))
                shown_rows.append(row)
    return "\n".join(lines).replace(DAYS, _days(shown_rows))


def _gemm_line(rung, row: Mapping, dtype: str, library: Mapping) -> str:
    step = rung.build(GemmShape(SIDE, SIDE, SIDE, dtype=dtype), rung.default_tiles).steps[0]
    name = link(f"`{rung.name}`", step.source) if isinstance(step, Launch) else f"`{rung.name}`"
    tiles = tiles_text(row["tiles"])
    spread = f"{units.time_(row['p20_ms'])} to {units.time_(row['p80_ms'])}, {row['n']}"
    share = 100 * library["median_ms"] / row["median_ms"]
    sums = "INT32" if dtype == "int8" else "FP32"
    return (
        f"| {name} | {dtype.upper()}, {sums} | {tiles} | {units.time_(row['median_ms'])} ({spread}) "
        f"| {row['flops'] / row['median_ms'] / 1e9:.3g} | {share:.3g} % |"
    )


def banks() -> str:
    """Returns the times of a warp's reads of shared memory at a stride, relative to stride 1, hot."""
    unpadded, padded = LADDERS["banks"].rungs
    counted = ", ".join(f"{memory_charts.wavefronts(stride, False):g}" for stride in STRIDES)
    lines = [
        "The time to read shared memory at a stride, divided by the time at stride 1. Same device, hot. Without padding the "
        f"emulator counts {counted} wavefronts (passes over the banks) a load.",
        "",
        "| stride | " + " | ".join(map(str, STRIDES)) + " |",
        "|---" * (len(STRIDES) + 1) + "|",
    ]
    for rung in (unpadded, padded):
        rows = [
            records.recorded(rung.name, BanksShape(n=262_144, stride=s, turns=64), rung.default_tiles, "hot")
            for s in STRIDES
        ]
        ratios = " | ".join(f"{r['median_ms'] / rows[0]['median_ms']:.3g}" for r in rows)
        lines.append(f"| {rung.title} | {ratios} |")
    return "\n".join(lines)


def attention() -> str:
    """Returns every rung at B=4 H=16 N=2048 d=64 in each type, and its peak memory at many keys."""
    shapes = [ATTENTION_PRESETS[f"attention-2048{type_}"].shape for type_ in ("", "-fp16", "-bf16")]
    many_keys = ATTENTION_PRESETS["attention-8192"].shape
    rungs = LADDERS["attention"].rungs
    recorded_rows = {
        r.name: [records.recorded(r.name, s, r.default_tiles) for s in (*shapes, many_keys)] for r in rungs
    }
    pytorch = [recorded_rows[r.name] for r in rungs if r.library == "PyTorch"]
    shown_rows = [row for rows in recorded_rows.values() for row in rows[: len(shapes)] if row]
    best = [min(rows[i]["median_ms"] for rows in pytorch if rows[i]) for i in range(len(shapes))]
    lines = [
        f"B = 4, H = 16, N = 2,048, d = 64, {_on('attention')}, cold, one run for each type. {_days(shown_rows)} *Of PyTorch*: the speed as a share of "
        f"PyTorch's fastest backend for that type. *Peak*: memory at B = {many_keys.B}, H = {many_keys.H}, N = {many_keys.N:,}, FP32, "
        "measured and predicted.",
        "",
        "| rung | FP32 | of PyTorch | FP16 | of PyTorch | BF16 | of PyTorch | peak | predicted |",
        "|---" * 9 + "|",
    ]
    for rung in rungs:
        if not any(recorded_rows[rung.name]):  # it does not run these shapes
            continue
        *rows, row_at_many_keys = recorded_rows[rung.name]
        cells = [
            f"{units.time_(row['median_ms'])} | {100 * best_ms / row['median_ms']:.3g} %" if row else " | "
            for row, best_ms in zip(rows, best, strict=True)
        ]
        bytes_ = "" if row_at_many_keys is None else units.bytes_(row_at_many_keys["peak_bytes"])
        program = rung.build(many_keys, rung.default_tiles)
        predicted = None if rung.cost(many_keys, program).workspace_bytes is None else program.nbytes()
        cells += [bytes_, units.bytes_(predicted) if row_at_many_keys else ""]
        lines.append(f"| `{rung.name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def attention_presets() -> str:
    """Returns, for each large preset in 16 bits, the fastest of our rungs and PyTorch's backends, cold."""
    rungs = LADDERS["attention"].rungs
    backends = [r.name for r in rungs if r.library == "PyTorch"]
    shown_rows: list[Mapping] = []
    lines = [
        f"Attention in 16 bits, {_on('attention')}, cold. *Ours*: our fastest rung. *Of PyTorch*: its speed as a share of "
        "PyTorch's fastest backend. An empty cell: PyTorch does not support the shape, or it is not recorded.",
        DAYS,
        "",
        "| shape | ours | time | " + " | ".join(f"`{name.partition('/')[2]}`" for name in backends) + " | of PyTorch |",
        "|---" * (4 + len(backends)) + "|",
    ]
    for preset in LADDERS["attention"].presets.values():
        s = preset.shape
        if s.dtype == "fp32" or s.bytes < MEGABYTE:
            continue
        rows = {r.name: row for r in rungs if (row := records.recorded(r.name, s, r.default_tiles))}
        times = {name: row["median_ms"] for name, row in rows.items()}
        ours = min((r.name for r in rungs if r.name in times and not r.library), key=times.__getitem__, default="")
        if not ours:
            continue
        shown_rows += [rows[name] for name in (ours, *backends) if name in rows]
        theirs = [units.time_(times[name]) if name in times else "" for name in backends]
        fastest = min((times[name] for name in backends if name in times), default=None)
        share = f"{100 * fastest / times[ours]:.3g} %" if fastest else ""
        lines.append(f"| {' | '.join((str(s), f'`{ours}`', units.time_(times[ours]), *theirs, share))} |")
    return "\n".join(lines).replace(DAYS, _days(shown_rows))


def softmax() -> str:
    """Returns cold medians of every rung at every preset."""
    rungs = LADDERS["softmax"].rungs
    lines = [
        f"Softmax of each row of a matrix, {_on('softmax')}, cold.",
        "",
        "| rows × length | " + " | ".join(f"`{r.name}`" for r in rungs) + " |",
        "|---" * (len(rungs) + 1) + "|",
    ]
    for preset in LADDERS["softmax"].presets.values():
        rows = [records.recorded(r.name, preset.shape, r.default_tiles) for r in rungs]
        times = " | ".join(units.time_(row["median_ms"]) if row else "" for row in rows)
        lines.append(f"| {preset.shape.M:,} × {preset.shape.N:,} | {times} |")
    return "\n".join(lines)


def fusion() -> str:
    """Returns cold medians of every rung at every preset, and fused time relative to a copy of the minimum of bytes."""
    rungs = LADDERS["fusion"].rungs
    lines = [
        f"Chains of blocks, {_on('fusion')}, cold. *Floor*: the time to read the chain's input and parameters once and to write its "
        "output once, at the copy rate measured in the same process. *Within the L2*: these bytes fit into the L2 cache, so "
        "no floor is given. The convolution of `fusion/implicit-gemm` is a matrix product. That of our other kernels is "
        "direct, one thread for each output. PyTorch calls cuDNN's.",
        "",
        "| chain | " + " | ".join(f"`{r.name}`" for r in rungs) + " | fused / floor |",
        "|---" * (len(rungs) + 2) + "|",
    ]
    for preset in LADDERS["fusion"].presets.values():
        rows = {r.name: records.recorded(r.name, preset.shape, r.default_tiles) for r in rungs}
        if not (row := rows["fusion/fused"]):
            continue
        times = " | ".join(units.time_(row["median_ms"]) if row else "" for row in rows.values())
        floor = preset.shape.bytes / row["ceilings"]["copy_bytes_per_s"] * 1e3
        exceeds_l2 = preset.shape.bytes > row["ceilings"]["cache_bytes"]
        ratio = f"{row['median_ms'] / floor:.3g}" if exceeds_l2 else "within the L2"
        lines.append(f"| {preset.label} | {times} | {ratio} |")
    return "\n".join(lines)


def layers() -> str:
    """Returns the fastest rung of ours of each layer that moves LARGE bytes: its time beside a copy of the same bytes and
    beside the library's fastest."""
    ladders = [ladder for name, ladder in LADDERS.items() if name not in (*layers_bench.OTHERS, *PRODUCTS)]
    settings = dict.fromkeys((ladder.name, p.shape) for ladder in ladders for p in ladder.presets.values())
    gpu = records.shown(*(ladder.name for ladder in ladders))  # one for all of the table
    large = {(name, s): _layer_rows(name, s, gpu) for name, s in settings if s.bytes >= LARGE}
    rows = {setting: found for setting, found in large.items() if found[0]}
    first = next(iter(rows.values()))[0][0]
    copy = (
        "a cold copy of as many bytes"
        if copies.rows(first["device"])
        else "as many bytes at the rate of a copy of 1 GiB"
    )
    lines = [
        f"Layers at shapes of {units.bytes_(LARGE)} or more, recorded on an {first['device']}, cold, default tile sizes: our "
        f"fastest rung. *Of a copy*: the time of {copy}, divided by the time of the layer. The bytes are each input read once and "
        "each output written once. Batch norm reads its input twice, so its share is lower. *Of the library*: the time of the "
        "fastest library's rung, divided by ours. Empty: the library has no such form.",
        "",
        "| layer | shape | bytes | our fastest | time | of a copy | of the library |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, s), (ours, library) in rows.items():
        row = min(ours, key=lambda row: row["median_ms"])
        ms, rate = row["median_ms"], row["ceilings"]["copy_bytes_per_s"]
        copy_ms = copies.copy_ms(s.bytes, row["device"]) or s.bytes / rate * 1e3
        of_library = units.share(min(r["median_ms"] for r in library) / ms) if library else ""
        lines.append(
            f"| {name} | {s} | {units.bytes_(s.bytes)} | `{row['rung']}` | {units.time_(ms)} "
            f"| {units.share(copy_ms / ms)} | {of_library} |"
        )
    return "\n".join(lines)


def _layer_rows(name: str, shape, gpu: Gpu | None) -> tuple[list[Mapping], list[Mapping]]:
    """Returns the cold rows at default tile sizes of a ladder's rungs: of ours, and of the libraries'."""
    rungs = LADDERS[name].rungs
    found = [(rung, records.recorded(rung.name, shape, rung.default_tiles, gpu=gpu)) for rung in rungs]
    ours, library = ([row for rung, row in found if row and bool(rung.library) == is_library] for is_library in (0, 1))
    return ours, library


def all_reduce() -> str:
    """Returns medians of an all-reduce on two GPUs by length, a table for each kind of GPU: our kernels and NCCL, bus bandwidth
    of ring and NCCL, and how far the cost model is off."""
    return "\n\n".join(_all_reduce_on(run["device"]) for run in collectives.machines(2))


def _all_reduce_on(device: str) -> str:
    names = (*KERNELS, collectives.NCCL)
    found = {name: {r["bytes"]: r for r in collectives.rows(ALL_REDUCE, name, 2, device=device)} for name in names}
    found = {name: rows for name, rows in found.items() if rows}
    of_ring = found[RING]
    first = next(iter(of_ring.values()))
    graphs = [n for n, row in of_ring.items() if row["launch"] == collective_gpus.GRAPH]
    lines = [
        f"All-reduce of float32 on two {device} (NVLink, one process, {first['date']}), verified on both GPUs and equal bit for bit. "
        f"Medians of {first['n']} samples, of the faster way to launch: up to about {units.bytes_(max(graphs))} a CUDA graph of many runs on each GPU, "
        "beyond that one run after the other. *Bus*: bytes a second through each port. –: not timed.",
        "",
        "| each GPU | " + " | ".join(f"`{name}`" for name in found) + " | bus, ring | bus, NCCL | ring / NCCL |",
        "|---" * (len(found) + 4) + "|",
    ]
    for nbytes in (n for n in of_ring if n in BY_FOUR):
        ring, nccl = of_ring[nbytes], found[collectives.NCCL][nbytes]
        times = " | ".join(units.time_(rows[nbytes]["median_ms"]) if nbytes in rows else "–" for rows in found.values())
        bus = " | ".join(units.bandwidth(row["bus_bytes_per_s"]) for row in (ring, nccl))
        lines.append(
            f"| {units.bytes_(nbytes)} | {times} | {bus} | {units.share(nccl['median_ms'] / ring['median_ms'])} |"
        )
    return "\n".join([*lines, "", _model_errors(found)])


def _model_errors(found: dict[str, dict[int, dict]]) -> str:
    """Returns how far a fit of the cost model to the times of each algorithm is off at most."""
    errors = []
    for name, rows in found.items():
        points = [Point(collectives.traffic(ALL_REDUCE, name, 2, n), row["median_ms"] / 1e3) for n, row in rows.items()]
        errors.append(f"`{name}` {units.share(cost.fit(points).worst)} ({len(points)} lengths)")
    return (
        "Largest error of the cost model, fitted to these times and those of the lengths between: "
        + ", ".join(errors)
        + "."
    )


LAUNCHES = {
    collective_gpus.CUPY: "CuPy's calls",
    collective_gpus.JOINT: "one graph of one run over both GPUs",
    collective_gpus.SINGLE: "a graph of one run on each GPU",
    collective_gpus.LAUNCH: "arguments packed once, the driver's launch",
    collective_gpus.GRAPH: "a graph of 20 runs on each GPU",
}


def launching() -> str:
    """Returns the times of our one-shot all-reduce and of NCCL's by the way to launch them, on each kind of GPU."""
    tables = []
    for run in collectives.machines(2):
        ms = {
            (row["algorithm"], row["launch"]): row["median_ms"]
            for row in run["rows"]
            if (row["kind"], row["ranks"], row["bytes"]) == (ALL_REDUCE, 2, LAUNCHED)
        }
        if (ONE_SHOT, collective_gpus.CUPY) not in ms:
            continue
        lines = [
            f"All-reduce of {units.bytes_(LAUNCHED)} on two {run['device']} ({run['date']}), one thread of the host launches on both GPUs.",
            "",
            "| way to launch | one-shot | NCCL |",
            "|---|---|---|",
        ]
        for launch, title in LAUNCHES.items():
            times = (ms.get((name, launch)) for name in (ONE_SHOT, collectives.NCCL))
            lines.append(f"| {title} | " + " | ".join(units.time_(t) if t else "–" for t in times) + " |")
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def parallel() -> str:
    """Returns recorded steps, for each kind of GPU: data parallel on one and two GPUs, with and without overlap, and the
    efficiency; then the ways that split the network."""
    parts = []
    for device in parallel_steps.devices():
        rows = [row for row in parallel_steps.rows(device) if row.get("step_us")]
        parts.append(_data_parallel([row for row in rows if row["way"] == DATA]))
        if split := [row for row in rows if row["way"] != DATA]:
            parts.append(_split(split, rows))
    return "\n\n".join(parts)


def _data_parallel(found: list[dict]) -> str:
    steps = {}
    for row in found:
        steps.setdefault((row["network"], row["batch"]), {})[row["gpus"], row["overlap"]] = row
    first = found[0]
    lines = [
        f"One step of SGD, data parallel on {first['device']} GPUs ({first['date']}), as CUDA graphs, gradients reduced by NCCL in "
        "buckets of 64 KB. The weights of both GPUs are equal bit for bit, and equal those of one GPU within 1e-5. "
        "*Efficiency*: of two GPUs, against one with the whole batch.",
        "",
        "| network | images | one GPU | two GPUs | without overlap | efficiency |",
        "|---|---|---|---|---|---|",
    ]
    for (network, batch), rows in sorted(steps.items()):
        one, two, plain = (rows.get(key, {}).get("step_us") for key in ((1, True), (2, True), (2, False)))
        if one and two and plain:
            times = " | ".join(units.time_(us / 1e3) for us in (one, two, plain))
            lines.append(f"| {network} | {batch:,} | {times} | {units.share(one / two / 2)} |")
    return "\n".join(lines)


def _split(found: list[dict], rows: list[dict]) -> str:
    """Returns the steps that split the network over two GPUs, beside one GPU and the prediction."""
    alone = {(row["network"], row["batch"]): row["step_us"] for row in rows if row["gpus"] == 1}
    first = found[0]
    lines = [
        f"The network split over two {first['device']} ({first['date']}). The weights equal those of one GPU within 1e-5; those of a "
        "pipeline equal one GPU's with as many micro-batches bit for bit. *Predicted*: from kernels recorded on an H200.",
        "",
        "| network | way | images | micro-batches | one GPU | two GPUs | predicted | efficiency |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        plan = Plan(*(row[name] for name in ("network", "way", "gpus", "batch", "micro", "bucket_bytes", "optimizer")))
        one = alone[row["network"], row["batch"]]
        times = [units.time_(us / 1e3) for us in (one, row["step_us"], timelines.timeline(plan).total)]
        micro = row["micro"] if row["way"] in PIPELINES else "–"
        lines.append(
            f"| {row['network']} | {row['way']} | {row['batch']:,} | {micro} | {' | '.join(times)} | {units.share(one / row['step_us'] / 2)} |"
        )
    return "\n".join(lines)


def training() -> str:
    """Returns recorded steps of each network, optimiser and batch: ours and PyTorch's, then ours with less memory."""
    found = {}
    for row in sorted(training_steps.rows(), key=lambda row: row["date"]):
        key = row["network"], row["optimizer"], row["batch"], row["memory"]["every"], row["memory"]["parts"]
        found[key] = row
    first, dates = next(iter(found.values())), sorted({row["date"] for row in found.values()})
    head = (
        f"One training step in FP32 on an {first['device']} ({', '.join(dates)}), without TF32: forward, backward, update. Medians "
        "of 9 samples of many steps in a row, by the host's clock."
    )
    return "\n\n".join((head, _whole_steps(found), _saved_memory(found)))


def _whole_steps(found: Mapping[tuple, Mapping]) -> str:
    names = ("one by one", "one graph", "eager", "torch.compile", "torch.compile, graph")
    lines = [
        f"| network | optimiser | images | ours, {' | '.join(names[:2])} | PyTorch, {' | '.join(names[2:])} |",
        "|---" * 8 + "|",
    ]
    for (network, optimizer, batch, every, parts), row in found.items():
        if (every, parts) == (0, 1):
            times = (units.time_(row[key] / 1e3) if row.get(key) else "–" for key in training_steps.WHOLE)
            lines.append(f"| {network} | {optimizer} | {batch:,} | {' | '.join(times)} |")
    return "\n".join(lines)


def _saved_memory(found: Mapping[tuple, Mapping]) -> str:
    """Returns the time of a step and the most bytes that its nodes hold, each way of saving memory beside the plain step."""
    ways = {(0, 1): "all kept", (3, 1): "every third layer kept", (0, 4): "in 4 parts", (3, 4): "both"}
    lines = [
        "*Held*: the most bytes that exist while any node runs, each tensor allocated at its first use and freed after its last.",
        "",
        "| network | optimiser | images | " + " | ".join(f"{way} | held" for way in ways.values()) + " |",
        "|---" * (3 + 2 * len(ways)) + "|",
    ]
    for network, optimizer, batch in dict.fromkeys(key[:3] for key in found):
        cells = []
        for way in ways:
            row = found.get((network, optimizer, batch, *way), {})
            cells.append(units.time_(row["graph_us"] / 1e3) if row else "–")
            cells.append(units.bytes_(max(map(sum, row["held"].values()))) if row.get("held") else "–")
        lines.append(f"| {network} | {optimizer} | {batch:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def moving_data() -> str:
    """Returns the totals of the recorded transfer programs, with the time of their busiest queue."""
    record = transfers.newest()
    rates = {way: points[-1]["bytes"] / points[-1]["ms"] * 1e3 for way, points in record["copies"].items() if points}
    lines = [
        f"Programs that move data, recorded on an {record['device']} (driver {record['driver']}, {record['date']}), each result "
        "verified. Large copies: "
        + ", ".join(f"`{way}` {units.bandwidth(rate)}" for way, rate in rates.items())
        + ". *Busiest queue*: of copies in, kernels and copies out.",
        "",
        "| program | size | total | p20 to p80 | n | busiest queue |",
        "|---|---|---|---|---|---|",
    ]
    found = [*record["scenarios"].items(), *record["large"].items()]
    for key, row in found:
        s, title = row["settings"], SCENARIOS[key].title
        size = f"{s['rows']:,} rows, n = {s['n']}" if s["rows"] > 1 else f"n = {s['n']}"
        spread = " to ".join(units.time_(row[q]) for q in ("p20_ms", "p80_ms"))
        busiest = units.time_(transfers.timeline(row).longest)
        lines.append(f"| {title} | {size} | {units.time_(row['total_ms'])} | {spread} | {row['n']} | {busiest} |")
    return "\n".join(lines)


def filled(text: str) -> str:
    """Returns a page with every table between its two marks replaced. ValueError if a table's marks are missing."""
    for table in (
        rungs,
        conv,
        algorithms,
        gemm,
        banks,
        attention,
        attention_presets,
        softmax,
        fusion,
        layers,
        all_reduce,
        launching,
        training,
        parallel,
        moving_data,
    ):
        begin, end = (f"<!-- recorded {table.__name__}: python -m benchmarks.tables -->", "<!-- end recorded -->")
        head, rest = text.split(begin)
        _, tail = rest.split(end, 1)
        text = f"{head}{begin}\n{table()}\n{end}{tail}"
    return text


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
