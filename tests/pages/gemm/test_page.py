"""Tests of the GEMM lesson without a browser: parts, controls, Run and Autotune."""

import re
from functools import partial
from itertools import product

import numpy as np
import pytest

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.jobs.job import JobError
from kernels.ladders import LADDERS
from pages.conv import address as conv_address
from pages.gemm import address, controls
from pages.gemm.address import DEFAULT, RUNGS
from pages.gemm.scene import _matrices, gemm
from pages.parts import autotune
from pages.parts import tiles as tile_sizes
from pages.parts import worker as worker_module
from tests.helpers.page_runner import finish, heads, links, open_page, stages, strip, texts
from visuals import units

open_at = partial(open_page, "gemm/page.py")


def illegal():
    """Yields (rung, tiles, rule) for each rung with an illegal combination of tile sizes."""
    shape = GEMM_PRESETS["square-1024"].shape
    for rung in RUNGS.values():
        for values in product(*rung.tiles.values()):
            tiles = dict(zip(rung.tiles, values, strict=True))
            if (
                shape.dtype in ("fp32",)
                and (rules := tile_sizes.broken(rung, shape, tiles))
                and tile_sizes.legal(rung, shape)
            ):
                yield rung, tiles, rules[0]
                break


# -- the page --------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["square-8", "odd", "square-4096", "tall", "deep", "gpt2-qkv", "square-64-int8"])
def test_a_preset_shows_every_part(key):
    shape = GEMM_PRESETS[key].shape
    at = open_at(**address.at_shape(address.read({})[0], shape))
    html = texts(at)
    assert "kt-note" not in html and f"C <b>{shape.M:,}×{shape.N:,}</b>" in html
    for part in (
        "Time",
        "Memory",
        "Roofline",
        "Why",
        "FLOP/s by kernel",
        "FLOP/s by size",
        "Autotune",
        "Tile sizes on this processor",
        "Kernel",
    ):
        assert f'<h2 class="kt-card">{part}' in html, part
    assert at.code and strip(at)["run"]["label"] == "Run here"
    query = address.read(dict(at.query_params))[0]
    sizes = ",".join(f"{name}={value}" for name, value in query.tiles.items())
    assert stages(at) == [f"{query.rung.name} {sizes} {shape}"]


@pytest.mark.parametrize("view", ["watch", "run", "why", "kernel", "autotune"])
def test_each_view_shows_only_its_part(view):
    at = open_at(view=view, M=16)
    assert bool([b for b in at.button if b.key == "run"]) == (view in ("run", "why"))
    assert bool([b for b in at.button if b.key == "autotune"]) == (view == "autotune")
    assert bool(at.code) == (view == "kernel")
    assert len(stages(at)) == (view == "watch")
    assert not at.number_input and "<h1" not in texts(at)


def test_invalid_parameters_are_named_and_escaped():
    at = open_at(M="abc", N="1e400", rung="<script>alert(1)</script>", BM="-3", K="5")
    html = texts(at)
    assert "M must be a whole number" in html and "&lt;script" in html and "<script" not in html
    assert at.number_input(key="K").value == 5 and at.number_input(key="M").value == DEFAULT.M


@pytest.mark.parametrize(("rung", "tiles", "rule"), list(illegal()), ids=lambda value: getattr(value, "name", None))
def test_illegal_tiles_are_named_and_kept(rung, tiles, rule):
    at = open_at(M=1024, N=1024, K=1024, rung=address.short(rung), **tiles)
    html = texts(at)
    assert (
        f"{units.named(rung.title, first=True)} cannot run with these settings: " in html
        and rule.partition(",")[0].replace("<", "&lt;").replace(">", "&gt;") in html
    )
    for name, value in tiles.items():
        assert at.selectbox(key=name).value == value
    (label,) = [label for label in links(at) if label.startswith("nearest sizes that run")]
    target, notes = address.read(links(at)[label])
    assert target.rung is rung and target.shape == GEMM_PRESETS["square-1024"].shape
    assert target.broken == [] and notes == [] and not stages(at)


def test_unsupported_dtype_is_named_with_links_to_supported_rungs():
    at = open_at(dtype="int8", rung="naive")
    assert "“naive, coalesced” cannot run with these settings: dtype must be fp32, got int8." in texts(at)
    assert at.selectbox(key="BLOCK").value == 32 and not stages(at)
    target, _ = address.read(links(at)["dp4a: INT8"])
    assert target.shape == DEFAULT.with_(dtype="int8") and target.broken == []


def test_library_has_no_stage_but_a_reason():
    at = open_at(rung="cublas")
    assert not stages(at) and "Its source is not open" in texts(at) and strip(at)["run"]["can"]


@pytest.mark.parametrize("order", ["explaining", "warps"])
def test_stage_plays_the_selected_order(order):
    at = open_at(M=64, N=64, K=64, rung="uncoalesced", order=order)
    (key,) = stages(at)
    assert key.endswith("warps") == (order == "warps") and "kt-note" not in texts(at)


def test_repeated_steps_are_one_step_until_every_step_is_chosen():
    at = open_at(M=64, N=64, K=64)
    folded = heads(at)[0]["meta"]["steps"]
    target = links(at)["every step"]
    assert target == {"view": "explore", "steps": "all"} and "fold steps" not in links(at)
    at = open_at(rung="naive", BLOCK="8", steps="all")
    assert links(at)["fold steps"] == {"rung": "naive", "BLOCK": "8"}
    opened = heads(open_at(**target))[0]
    assert opened["meta"]["steps"] > 2 * folded and opened["every"] == {"all": True, "text": "fold steps"}
    assert heads(open_at(order="warps"))[0]["every"] is None
    assert heads(open_at(view="story", chapter="1", steps="all"))[0]["chapter"]["loop"] is None
    assert "every step" not in links(open_at(order="warps"))


@pytest.mark.parametrize(("rung", "offered"), [("naive", False), ("shared-tile", True), ("double-buffer", True)])
def test_rungs_with_tiles_in_shared_memory_have_a_timeline(rung, offered):
    at = open_at(M=64, N=64, K=64, rung=rung, order="timeline")
    key = stages(at)[0]
    assert key.endswith("timeline") == offered and "kt-note" not in texts(at)


def test_only_mma_sync_has_the_order_fragments():
    parameters = {"M": 64, "N": 64, "K": 64, "dtype": "fp16", "order": "fragments"}
    at = open_at(rung="mma-sync", **parameters)
    assert stages(at) == ["m16n8k16"] and "kt-note" not in texts(at)
    at = open_at(rung="wmma", **parameters)
    assert stages(at)[0].startswith("gemm/wmma")


def test_fragments_are_the_corner_of_the_matrices_padded_with_zeros():
    shape = GemmShape(5, 20, 9, dtype="fp16")
    tiles = tuple(RUNGS["mma-sync"].default_tiles.items())
    scene, why = gemm(shape, "gemm/mma-sync", tiles, "fragments")
    A, B = (np.asarray(matrix, np.float32) for matrix in _matrices(shape)[:2])
    tensors = {t.name: np.reshape(t.values, (t.rows, t.cols)) for t in scene.tensors[:2]}
    assert not why and (tensors["A"][:5, :9] == A).all() and (tensors["B"][:9] == B[:, :8]).all()
    assert not tensors["A"][5:].any() and not tensors["A"][:, 9:].any() and not tensors["B"][9:].any()
    assert A.any() and B.any()


def runnable(shape):
    return [rung for rung in RUNGS.values() if not any(rung.rules(shape, rung.default_tiles))]


def test_unsupported_rungs_are_grouped_by_rule():
    refused = len(RUNGS) - len(runnable(GemmShape(64, 64, 64)))
    html = texts(open_at()).partition(f"{refused} kernels cannot run with these settings</summary>")[2]
    halves = re.search(r">([^<>]*): dtype must be fp16 or bf16</p>", html)[1]
    assert halves.startswith("wmma, mma.sync, wgmma and TMA, ") and halves.endswith(", cuBLAS FP16")
    assert ">dp4a: dtype must be int8</p>" in html
    label = "kernels cannot run with these settings</summary>"
    assert "uncoalesced, naive" in texts(open_at(dtype="fp16", rung="wmma")).partition(label)[2]


def test_why_lists_many_rungs_as_rows_and_merges_equal_values():
    html = texts(open_at(M=4096, N=4096, K=4096))
    why = html.partition('<h2 class="kt-card">Why')[2].partition("</h2>")[2].partition("</h2>")[0]
    assert f"all {len(runnable(GemmShape(4096, 4096, 4096)))} kernels" in why
    assert '<th scope="row">warp tile</th>' in why and '<th scope="col">relative L2 error</th>' in why
    few = texts(open_at(dtype="int8", rung="dp4a"))
    assert '<th scope="col">FLOP/byte</th>' not in few and "<td>FLOP/byte</td>" in few


def test_tile_choices_are_legal_and_reach_the_kernel():
    at = open_at(M=64, N=64, K=64)
    query = address.read({"M": 64, "N": 64, "K": 64})[0]
    offered = tile_sizes.choices(query.rung, query.shape, query.tiles)
    for name, choices in offered.items():
        assert at.selectbox(key=name).options == [str(choice) for choice in choices]
    assert len(offered["BM"]) > 1
    at.selectbox(key="BM").select(8).run()
    assert not at.exception and "<b>shared_tile</b> with BM 8 BN 32 BK 32: 256 threads per block" in texts(at)
    assert "Difference from 02_naive.cu" in texts(at)


def test_run_uses_page_tiles_for_the_selected_rung_only():
    shape, watched = GemmShape(32, 32, 32), RUNGS["shared-tile"]
    chosen_tiles = next(t for t in tile_sizes.legal(watched, shape) if t != watched.default_tiles)
    at = open_at(engine="cpu", M=32, N=32, K=32, rung="shared-tile", **chosen_tiles)
    finish(at, "run", "job")
    rows = at.session_state["ran"].rows
    assert list(rows) == ["gemm/naive", "gemm/shared-tile", "gemm/cublas"]
    for name, row in rows.items():
        assert row["tiles"] == (chosen_tiles if name == watched.name else RUNGS[name.partition("/")[2]].default_tiles)
    html = texts(at)
    assert "kt-badge-measured" in html and "kt-stale" not in html
    name, other = next(
        (n, v) for n, c in tile_sizes.choices(watched, shape, chosen_tiles).items() for v in c if v != chosen_tiles[n]
    )
    at.selectbox(key=name).select(other).run()
    assert "stale: measured at M32 N32 K32" in texts(at) and not at.exception


def test_processor_measures_nothing_under_the_name_of_a_gpus_hardware():
    at = open_at(engine="cpu", M=32, N=32, K=32, rung="bank-free")
    assert "no shared-memory banks" in texts(at)
    finish(at, "run", "job")
    times = next(html.value for html in at.get("html") if "fastest library" in html.value and "<th" in html.value)
    for rung in RUNGS.values():
        assert (f">{rung.title_on('cpu')}<" in times) == (rung.name in at.session_state["ran"].rows)
        assert f">{rung.title}<" not in times


def test_autotune_does_not_time_a_rung_that_the_processor_does_not_have():
    at = open_at(engine="cpu", view="autotune", M=24, N=24, K=24, rung="bank-free")
    assert not [b for b in at.button if b.key == "autotune"]
    assert "Without bank conflicts is not measured on the cpu engine: a processor has no" in texts(at)
    at = open_at(engine="cpu", view="autotune", M=24, N=24, K=24, rung="naive")
    assert not [b for b in at.button if b.key == "autotune"]  # NumPy does not use BLOCK


def test_rows_of_a_lesson_are_restored_after_another_was_open():
    at = open_at(engine="cpu", dtype="int8", rung="dp4a")
    finish(at, "run", "job")
    gemm_run = at.session_state["ran"]
    at.switch_page("conv/im2col.py")
    for name, value in conv_address.write(conv_address.ConvQuery(CONV_PRESETS["toy"].shape)).items():
        at.query_params[name] = value
    at.run()
    assert not at.exception and "ran" not in at.session_state and "kt-badge-measured" not in texts(at)
    at.switch_page("gemm/page.py")
    at.run()
    assert not at.exception and at.session_state["ran"] is gemm_run


# -- autotune --------------------------------------------------------------------------------------
def test_autotune_times_legal_tiles_and_names_the_best(monkeypatch):
    monkeypatch.setattr(autotune, "MAX_CANDIDATES", 5)
    monkeypatch.setattr(autotune, "SECONDS", 0.02)
    at = open_at(engine="cpu", view="autotune", M=24, N=24, K=24)
    rung = RUNGS[address.DEFAULT_RUNG]
    legal = tile_sizes.legal(rung, GemmShape(24, 24, 24))
    assert f"5 of {len(legal)} legal combinations" in texts(at)
    finish(at, "autotune", "sweep")
    sweep = at.session_state["sweep"]
    assert not sweep.failed and not sweep.todo and len(sweep.rows) == 5
    assert all(row["tiles"] in legal and row["engine"] == "cpu" and row["n"] >= 3 for row in sweep.rows)
    html = texts(at)
    best = min(sweep.rows, key=lambda row: row["median_ms"])["tiles"]
    assert f"BM {best['BM']}, BN {best['BN']}, BK {best['BK']} is fastest: " in html
    assert "kt-badge-measured" in html and "kt-stale" not in html
    at.query_params["M"] = "25"
    at.run()
    assert "stale: measured at" in texts(at) and not at.exception


def test_autotune_continues_after_a_failure_and_can_be_stopped(monkeypatch):
    monkeypatch.setattr(autotune, "SECONDS", 0.02)
    worker, requests = worker_module.worker(), []
    real_submit = worker.submit

    def submit(request, **kwargs):
        requests.append(request)
        if len(requests) == 1:
            raise JobError("256 runs are waiting already; try again in a moment")
        return real_submit(request, **kwargs)

    monkeypatch.setattr(worker, "submit", submit)
    at = open_at(engine="cpu", view="autotune", M=9, N=9, K=9)
    at.button(key="autotune").click().run()
    assert len(requests) >= 2
    at.button(key="stop_autotune").click().run()
    sweep = at.session_state["sweep"]
    assert not at.exception and sweep.stopped and not sweep.job and not sweep.todo
    assert "No time: BM" in texts(at) and "try again in a moment" in texts(at)
    assert [b for b in at.button if b.key == "autotune"]


def test_the_map_of_a_launch_at_a_real_size():
    size = {"M": 4096, "N": 4096, "K": 4096}
    assert stages(open_at(order="map", rung="shared-tile", **size))[0].startswith("map gemm/shared-tile M4096")
    assert stages(open_at(order="map", rung="naive"))[0].startswith("map gemm/naive")


TITLED = re.compile(r'<h2 class="kt-card">(Time|Memory|Roofline|Why) <small>(.*?)</small>')
FASTEST = re.compile(r"is fastest: (.*?)\.(?: |<)")


@pytest.mark.parametrize("size", ["", "real", "stage"])
def test_the_cards_are_about_the_size_that_the_strip_shows(size):
    at = open_at(**({"size": size} if size else {}))
    named = "64³, on the stage" if size == "stage" else "4,096³"
    titles = dict(TITLED.findall(texts(at)))
    assert titles == dict.fromkeys(("Time", "Memory", "Roofline"), named) | {"Why": "64³, on the stage"}
    shape = GemmShape(*[64 if size == "stage" else 4096] * 3)
    rows = [records.recorded(rung.name, shape, rung.default_tiles) for rung in LADDERS["gemm"].rungs]
    fastest = min(row["median_ms"] for row in rows if row)
    assert units.time_(fastest) in FASTEST.findall(texts(at))[0]


def test_the_cards_name_the_only_size():
    titles = dict(TITLED.findall(texts(open_at(M=4096, N=4096, K=4096))))
    assert titles == dict.fromkeys(("Time", "Memory", "Roofline", "Why"), "4,096³")


def test_an_unknown_size_in_the_url_is_the_first():
    assert dict(TITLED.findall(texts(open_at(size="large"))))["Time"] == "4,096³"


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int8"])
def test_the_real_size_has_the_type_on_the_stage(dtype):
    query = address.read({"dtype": dtype})[0]
    assert controls.sizes(query).real(query.shape) == GemmShape(4096, 4096, 4096, dtype=dtype)
