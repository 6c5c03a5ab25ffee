"""Tests of the lesson on parallel training without a browser: every way and network, its rules, its comparison."""

from __future__ import annotations

import time as clock
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines.cuda import devices
from kernels.jobs.job import JobError
from kernels.jobs.parallel_step import ParallelStep
from kernels.parallel import check as checks
from kernels.parallel.check import LIMIT, check, images_of
from kernels.parallel.plan import DATA, GPIPE, ONE_F_ONE_B, TENSOR, WAYS, ZERO_3, Plan
from kernels.parallel.timeline import one_gpu as one_gpu_plan
from kernels.training.networks import NETWORKS
from pages.parallel import address, cards, live
from pages.parts import machine_choice, one_run
from tests.helpers.page_runner import heads, links, open_page, press, stages, strip, texts
from visuals.parallel.evidence import ParallelEvidence

open_at = partial(open_page, "parallel/page.py")
CARDS = (
    "What moves, and when",
    "The same numbers",
    "Memory of each GPU",
    "What the prediction assumes",
    "Recorded on several GPUs",
)


@pytest.mark.parametrize(("network", "way"), [("lenet5", DATA), ("transformer", TENSOR), ("residual", ONE_F_ONE_B)])
def test_a_way_shows_its_time_axis_and_every_card(network, way):
    at = open_at(network=network, way=way, batch=64)
    assert stages(at) == [f"{network} {way} 4 64 4 64000 sgd"]
    for card in CARDS:
        assert f'<h2 class="kt-card">{card}</h2>' in texts(at)
    assert set(links(at)) >= {"Story", "**Explore**"}
    assert strip(at)["sizes"][0]["time"]["badge"]["kind"] == "predicted"


@pytest.mark.parametrize("way", [ZERO_3, GPIPE])
def test_the_other_picture_is_what_each_gpu_holds(way):
    at = open_at(way=way, picture="memory", optimizer="adam")
    assert stages(at) == [f"transformer {way} 4 256 4 64000 adam memory"]
    assert heads(at)[0]["meta"]["steps"] == 5


@pytest.mark.parametrize(
    ("params", "rule", "key"),
    [
        ({"gpus": 3}, "256 images cannot be split equally over 3 GPUs", "transformer data 4 256"),
        ({"way": TENSOR, "gpus": 8}, "block1 attention has 4 heads, which 8 GPUs", "transformer tensor 4 256"),
        ({"way": TENSOR, "network": "residual"}, "nothing to split", "residual data 4 256"),
        ({"way": GPIPE, "micro": 3}, "3 equal micro-batches", "transformer gpipe 4 256 4"),
        ({"batch": 16_384, "gpus": 1}, "images * heads &lt;= 65535 (grid.y), got 16384 * 4", "transformer data 1 256"),
        ({"batch": 16_384, "gpus": 4}, "At most 16383 images can run", "transformer data 4 256"),
    ],
)
def test_a_broken_rule_is_said_in_words_and_the_fewest_fields_are_reset(params, rule, key):
    at = open_at(**params)
    assert rule in texts(at)
    assert stages(at)[0].startswith(key)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(NETWORKS)),
    st.sampled_from(list(WAYS)),
    st.integers(1, 8),
    st.integers(1, 65_536),
    st.integers(1, 16),
)
def test_whatever_the_url_says_a_plan_keeps_the_rules(network, way, gpus, batch, micro):
    raw = {"network": network, "way": way, "gpus": str(gpus), "batch": str(batch), "micro": str(micro)}
    values, notes = address.FIELDS.read(raw)
    plan = address.plan(values)
    assert bool(notes) == any(str(values[name]) != text for name, text in raw.items())
    assert plan.batch == values["batch"]


def test_the_number_of_images_can_be_raised_to_the_limit_of_attention_and_no_further():
    at = open_at(network="transformer", gpus=1, batch=16_383)
    assert stages(at) == ["transformer data 1 16383 4 64000 sgd"]
    images = next(field for field in at.number_input if field.label == "images")
    images.set_value(16_384).run()
    assert not at.exception
    assert "At most 16383 images can run" in texts(at)
    assert stages(at) == ["transformer data 1 256 4 64000 sgd"]


def test_a_step_that_does_not_fit_says_what_sharding_saves():
    values = address.FIELDS.read({"network": "transformer", "bucket": "5"})[0]
    assert address.too_large(values) == ""
    text = address.too_large(values, free=1_000_000)
    assert "a GPU needs" in text and "sharding the weights, gradients and state saves" in text


# -- the comparison --------------------------------------------------------------------------------------
@pytest.mark.parametrize("way", WAYS)
def test_the_comparison_finds_the_numbers_of_one_gpu(way):
    result = check(Plan("lenet5", way, 2, 64, 2))
    assert result.images == 24 and result.right and result.error <= LIMIT
    if way in (GPIPE, ONE_F_ONE_B):
        assert result.parts_error == 0
    else:
        assert (result.parts_error is None) == (way == TENSOR)


def test_the_comparison_tells_that_batch_norm_is_not_the_same():
    plan = Plan("residual", DATA, 2, 64)
    result = check(plan)
    assert not result.right and result.parts_error == 0
    assert "bit by bit" in cards.result_text(ParallelEvidence(plan), result)


def test_a_weight_that_is_no_number_is_infinitely_wrong(monkeypatch):
    real = checks.tensor.train

    def broken(plan, *args, **factors):
        outcome = real(plan, *args, **factors)
        outcome.weights[0][-130] = float("nan")
        return outcome

    monkeypatch.setattr(checks.tensor, "train", broken)
    result = check(Plan("lenet5", TENSOR, 2, 64), seed=7)
    assert result.error == float("inf") and not result.right


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(1, 16))
def test_a_comparison_has_images_for_every_gpu_and_micro_batch(gpus, micro):
    count = images_of(Plan("lenet5", GPIPE, gpus, 240 * 7 * micro, micro))
    assert count % gpus == 0 and count % micro == 0 and count <= 120


@pytest.fixture
def one_gpu(monkeypatch):
    monkeypatch.setattr(devices, "refusal", lambda gpus: f"{gpus} GPUs are needed, this machine has 1")


def test_compare_runs_the_step_here_and_shows_the_result(one_gpu):
    at = open_at(way=TENSOR, network="lenet5")
    run = strip(at)["run"]
    assert run["can"] and not run["running"] and run["label"] == "Compare"
    assert run["text"] == "Not measured here: 4 GPUs are needed, this machine has 1."
    press(at, "run")
    assert not at.exception
    assert "24 images: the weights differ from one GPU’s float64 step by at most" in texts(at)
    assert strip(at)["run"]["text"].startswith("equal within")


# -- the run on GPUs -------------------------------------------------------------------------------------
class Fakes:
    """Jobs that end when a test says so: rows, or the error of their process."""

    def __init__(self, monkeypatch):
        self.jobs, self.cancelled = [], []
        worker = SimpleNamespace(
            submit=self.submit, position=lambda job: 0, cancel=lambda job: self.cancelled.append(job)
        )
        for module in (one_run, machine_choice):
            monkeypatch.setattr(module, "worker", lambda: worker)

    def submit(self, request, owner, fresh):
        job = SimpleNamespace(request=request, done=False, share=0.4, text="timing the step", result=None)
        self.jobs.append(job)
        return job

    def end(self, found) -> None:
        def result():
            if isinstance(found, str):
                raise JobError(found)
            return found

        self.jobs[-1].result, self.jobs[-1].done = result, True


@pytest.fixture
def fakes(monkeypatch):
    monkeypatch.setattr(
        devices, "refusal", lambda gpus: "" if gpus <= 2 else f"{gpus} GPUs are needed, this machine has 2"
    )
    return Fakes(monkeypatch)


def row(plan: Plan, us: float) -> dict:
    names = ("network", "way", "gpus", "batch", "micro", "optimizer", "bucket_bytes")
    return {name: getattr(plan, name) for name in names} | {
        "step_us": us,
        "device": "NVIDIA X",
        "error_of_weights": 1e-7,
    }


@pytest.mark.parametrize("way", [DATA, TENSOR, GPIPE])
def test_where_there_are_gpus_run_measures_the_step(fakes, way):
    at = open_at(way=way, gpus=2, network="lenet5")
    assert strip(at)["run"]["label"] == "Run here" and strip(at)["run"]["text"] == ""
    press(at, "run")
    run = strip(at)["run"]
    assert (run["running"], run["label"], run["text"], run["share"]) == (True, "Stop", "timing the step", 0.4)
    (job,) = fakes.jobs
    plan = Plan("lenet5", way, 2, 256, 4, 64_000)
    assert job.request == ParallelStep(plan)
    fakes.end([row(one_gpu_plan(plan), 300.0), row(plan, 200.0)])
    at.run()
    time = strip(at)["sizes"][0]["time"]
    assert time["value"] == "200 µs" and time["badge"] == {"kind": "measured", "text": "measured here · X"}
    assert time["text"].startswith("Measured efficiency 75 %")
    assert not strip(at)["run"]["running"] and strip(at)["run"]["label"] == "Run here"
    assert "measured on 2 × NVIDIA X" in texts(at)


def test_another_step_does_not_show_the_time_of_this_one(fakes):
    at = open_at(gpus=2, network="lenet5")
    press(at, "run")
    plan = Plan("lenet5", DATA, 2, 256, 4, 64_000)
    fakes.end([row(one_gpu_plan(plan), 300.0), row(plan, 200.0)])
    at.run()
    at.query_params["batch"] = "512"
    at.run()
    assert strip(at)["sizes"][0]["time"]["badge"]["kind"] != "measured"


def test_stop_ends_the_run(fakes):
    at = open_at(gpus=2)
    press(at, "run")
    press(at, "stop")
    assert fakes.cancelled == fakes.jobs and len(fakes.jobs) == 1
    assert not strip(at)["run"]["running"]


def test_a_run_that_hangs_ends_in_words(fakes):
    at = open_at(gpus=2)
    press(at, "run")
    fakes.end("GPU 1 did not end within 20 s: another GPU or its link may be lost")
    at.run()
    assert strip(at)["run"]["error"].startswith("GPU 1 did not end within 20 s")
    assert strip(at)["sizes"][0]["time"]["badge"]["kind"] != "measured"


def test_more_gpus_than_there_are_and_sharded_state_are_compared_on_the_processor(fakes):
    run = strip(open_at(gpus=4))["run"]
    assert run["label"] == "Compare" and "4 GPUs are needed, this machine has 2" in run["text"]
    run = strip(open_at(gpus=2, way=ZERO_3))["run"]
    assert run["label"] == "Compare"
    assert run["text"] == "Not measured here: sharded state runs on a processor only."
    assert not fakes.jobs


@pytest.mark.gpu
@pytest.mark.parametrize(("way", "micro"), [(DATA, 4), (TENSOR, 4), (GPIPE, 8)])
def test_the_button_runs_the_step_on_two_gpus(way, micro):
    if devices.count() < 2:
        pytest.skip("two GPUs are needed")
    at = open_at(network="transformer", way=way, gpus=2, batch=1024, micro=micro)
    assert strip(at)["run"]["label"] == "Run here"
    press(at, "run")
    end = clock.monotonic() + 110
    while at.session_state[live.KEY].running:
        assert clock.monotonic() < end and not at.exception
        clock.sleep(0.1)
        at.run()
    at.run()
    assert strip(at)["run"]["error"] == ""
    time = strip(at)["sizes"][0]["time"]
    assert time["badge"]["kind"] == "measured" and time["text"].startswith("Measured efficiency")
    (found,) = at.session_state[live.KEY].results.values()
    assert {row["gpus"] for row in found} == {1, 2}
    assert all(0 <= row["error_of_weights"] <= LIMIT and row["step_us"] > 0 for row in found)
    print(way, {row["gpus"]: row["step_us"] for row in found})


def test_messages_of_a_pipeline_go_between_numbered_gpus():
    html = texts(open_at(way=GPIPE, gpus=2, micro=2))
    assert "GPU 1 to GPU 2" in html and "GPU 2 to GPU 1" in html and "GPU 0 to" not in html
