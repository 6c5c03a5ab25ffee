"""The whole page of a lesson without a browser: every part is present at every preset, and Run works."""

import re
from functools import partial

import pytest

from kernels import engines
from kernels.conv.presets import CONV_PRESETS
from kernels.jobs.job import JobError
from kernels.ladders import LADDERS
from kernels.machine.driver import GpuInfo
from kernels.machine.elsewhere import Machine
from kernels.runner import compare
from pages.conv import address as conv_address
from pages.parts import machine_choice
from pages.parts.run_settings import RunSettings
from pages.parts.worker import worker
from tests.helpers.page_runner import components, finish, messages, open_page, press, stages, strip, texts

open_at = partial(open_page, "conv/im2col.py")
LONG = {"N": 8, "C": 64, "H": 224, "W": 224, "K": 64, "pad_h": 1, "pad_w": 1}  # minutes of float64 reference
RUNGS = ["conv/direct", "conv/im2col-gemm", "conv/im2col-cublas"]


@pytest.mark.parametrize("key", CONV_PRESETS)
def test_every_preset_shows_every_part(key):
    shape = CONV_PRESETS[key].shape
    at = open_at(**conv_address.at_shape(conv_address.DEFAULT, shape))
    (key,), (message,) = stages(at), messages(at)
    assert ",".join(f"{name}={value}" for name, value in shape.params().items()) in key
    assert len(message) < 110_000  # bytes; LeNet's hold the partial sums of 784 columns
    text = texts(at)
    notes = re.findall(r'class="kt-note">(.*?)</p>', text)
    assert (
        all("smaller convolution" in note for note in notes)
        and f"data matrix <b>{shape.CRS:,}×{shape.PQ:,}</b>" in text
    )
    assert "kt-badge-recorded" in text and "kt-badge-predicted" in text and "kt-badge-measured" not in text
    assert "cannot run with these settings" not in text
    assert len(at.code) == 1 and strip(at)["run"]["label"] == "Run here"


@pytest.mark.parametrize(
    ("view", "stages", "runs", "codes"), [("watch", 1, 0, 0), ("run", 0, 1, 0), ("why", 0, 1, 0), ("kernel", 0, 0, 1)]
)
def test_each_view_shows_only_its_part(view, stages, runs, codes):
    at = open_at(view=view, C="3")
    assert len(components(at)) == stages
    assert len([b for b in at.button if b.key == "run"]) == runs
    assert bool(at.code) == bool(codes)
    assert not at.number_input and "<h1" not in texts(at)


def test_run_becomes_stale_and_fresh_again():
    at = open_at(engine="cpu")
    finish(at, "run", "job")
    assert "kt-badge-measured" in texts(at) and "kt-stale" not in texts(at)
    ran = at.session_state["ran"]
    assert list(ran.rows) == RUNGS and all(row["engine"] == "cpu" for row in ran.rows.values())
    at.number_input(key="K").set_value(3.0).run()
    assert "stale: measured at N1 C1 8x8 K2 3x3" in texts(at)
    assert at.session_state["ran"] is ran and "job" not in at.session_state  # not run again automatically
    at.number_input(key="K").set_value(2.0).run()
    assert "kt-stale" not in texts(at) and not at.exception


def test_the_shape_may_change_during_a_run():
    at = open_at(engine="cpu", K="5")
    press(at, "run", size="stage")
    job, _ = at.session_state["job"]
    at.query_params["K"] = "6"  # as a link does
    at.run()
    assert at.session_state["job"][0] is job  # it goes on
    job.result(timeout=240)
    at.run()
    assert "stale: measured at N1 C1 8x8 K5 3x3" in texts(at)
    at.query_params["K"] = "5"
    at.run()
    assert "kt-badge-measured" in texts(at) and "kt-stale" not in texts(at)


def test_a_run_is_stopped():
    at = open_at(engine="cpu", **LONG)
    press(at, "run", size="stage")
    job, _ = at.session_state["job"]
    press(at, "stop")
    with pytest.raises(JobError, match="cancelled"):
        job.result(timeout=10)
    at.run()
    assert "cancelled" in texts(at) and "job" not in at.session_state and "ran" not in at.session_state
    assert strip(at)["run"]["label"] == "Run here"


def test_worker_runs_the_chosen_options():
    at = open_at(engine="cpu", caches="hot", TILE="8")
    finish(at, "run", "job")
    rows = at.session_state["ran"].rows
    assert {row["mode"] for row in rows.values()} == {"hot"}
    assert rows["conv/im2col-gemm"]["tiles"] == {"BLOCK": 256, "TILE": 8}
    assert rows["conv/direct"]["tiles"] == {"BLOCK": 256}


def test_shape_too_large_for_memory_is_reported_and_next_run_works():
    at = open_at(engine="cpu", N="64", C="1024", H="512", W="512", K="1024")
    finish(at, "run", "job")
    assert "ran" not in at.session_state
    assert "bytes are free; take a smaller shape or batch" in texts(at)
    for name in "NCHWK":  # as a link to the toy does
        at.query_params[name] = str(conv_address.DEFAULT.params()[name])
    at.run()
    assert stages(at)[0].startswith("im2col 0,0 N=1,C=1,H=8,W=8,K=2")
    finish(at, "run", "job")
    assert "kt-badge-measured" in texts(at) and "bytes are free" not in texts(at)


def test_full_queue_is_reported(monkeypatch):
    at = open_at(engine="cpu")

    def full(request, **options):
        raise JobError("64 runs are waiting already; try again in a moment")

    monkeypatch.setattr(worker(), "submit", full)
    press(at, "run", size="stage")
    assert not at.exception and "try again in a moment" in texts(at)
    assert "job" not in at.session_state


# -- a pool: machines with GPUs, for an app that may have none --------------------------------------
def machine(device: str, *capability: int) -> Machine:
    gpu = GpuInfo(device, 1, "0000:65:00.0", capability, 232_448) if capability else None
    return Machine(device, gpu, "" if gpu else "no NVIDIA GPU in this machine")


POOL = {m.device: m for m in (machine("A100", 8, 0), machine("H200", 9, 0), machine("a processor"))}
CHOICES = ["any", *POOL, "this machine"]


@pytest.fixture
def requested(monkeypatch):
    """Returns the requests that the pool gets, each with its device."""
    found = []

    def submit(request, **options):
        found.append((request, options.get("device", "")))
        raise JobError("the pool has no worker")

    monkeypatch.setattr(machine_choice, "machines", lambda: POOL)
    monkeypatch.setattr(worker(), "submit", submit)
    return found


def pills(at, name: str) -> list[list[str]]:
    return [group.options for group in at.get("button_group") if group.key == name]


@pytest.mark.parametrize("choice", CHOICES)
def test_the_reader_chooses_a_machine_of_the_pool(requested, choice):
    at = open_at(engine="cpu", machine=choice)
    assert pills(at, "machine") == [CHOICES]
    gpu = choice in ("any", "A100", "H200") or (engines.load("cuda").status().ready and choice == "this machine")
    assert pills(at, "engine") == [["cuda", "cpu"] if gpu else ["cpu"]]
    press(at, "run", size="stage")
    ((request, device),) = requested
    assert device == ("" if choice == "any" else choice) and request.engine == "cpu"
    assert "the pool has no worker" in texts(at)


@pytest.mark.parametrize("choice", ["any", "A100", "H200"])
def test_a_page_offers_the_gpu_of_the_chosen_machine_with_its_rules(requested, choice):
    at = open_page("gemm/page.py", dtype="fp16", engine="cuda", machine=choice, M="256", N="256", K="256")
    press(at, "run", size="stage")
    ((request, device),) = requested
    assert request.engine == "cuda" and device == ("" if choice == "any" else choice)
    assert "gemm/mma-sync" in request.rungs and ("gemm/wgmma" in request.rungs) == (choice != "A100")
    assert "cuda runs on" in " ".join(caption.value for caption in at.caption)
    text = texts(at)
    assert ("A100 has 8.0" in text) == (choice == "A100") and "This computer" not in text


def test_a_card_without_a_gpu_is_named(requested):
    at = open_at(machine="a processor")
    captions = " ".join(caption.value for caption in at.caption)
    assert "No cuda: a processor, of the pool: no NVIDIA GPU in this machine." in captions


def test_an_empty_pool_offers_this_machine(monkeypatch):
    monkeypatch.setattr(machine_choice, "machines", dict)
    at = open_at(engine="cpu")
    assert pills(at, "machine") == [["any", "this machine"]]


def test_without_a_pool_there_is_no_machine_to_choose():
    at = open_at(engine="cpu")
    assert not pills(at, "machine")


def test_a_kernel_that_is_not_on_the_stage_runs_with_the_tile_sizes_for_the_shape():
    ladder = LADDERS["linear"].only("linear/naive", "linear/split")
    naive, split = ladder.rungs
    few_rows, many_rows = (ladder.shape(M, 256, 256) for M in (8, 64))
    for shape, sizes in ((few_rows, split.tiles_at(few_rows)), (many_rows, split.default_tiles)):
        chosen = tuple(naive.default_tiles.items())
        request = RunSettings(ladder, shape, "cpu", "cold", chosen, naive.name).request()
        results = compare(request.rungs, shape, None, request.engine, request.tiles, measure=False)
        assert [dict(r.tiles) for r in results] == [naive.default_tiles, sizes]
    assert split.tiles_at(few_rows) != split.default_tiles
