"""Tests of the lesson on training without a browser: every network, its controls, a training that stops, goes on, diverges."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import pytest

from kernels.jobs.episode import Episode
from kernels.jobs.job import JobError
from kernels.training.loop import Settings, Training
from kernels.training.networks import NETWORKS
from pages.train import address, cards, live
from pages.train.chapters import CHAPTERS
from pages.train.live import Live
from tests.helpers.page_runner import heads, links, open_page, press, stages, strip, texts
from visuals.training.plan import all_bytes, plan

open_at = partial(open_page, "train/page.py")
STEPS = 15
PLAN = plan("lenet5", 256, "sgd")
FAST = {"network": "residual", "batch": 100, "epochs": 1}  # STEPS steps


def curve(at):
    return strip(at)["sizes"][0]["curve"]


def training(at) -> Live:
    return at.session_state[live.KEY]


def wait(at, until) -> None:
    """Reruns the page as the browser's polling does, after each episode, until something is so."""
    end = time.monotonic() + 120
    while not until(at):
        assert time.monotonic() < end and not at.exception
        training(at).job._done.wait(end - time.monotonic())
        at.run()


def ended(at) -> bool:
    return not training(at).running


# -- the page ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_shows_its_step_and_every_card(network):
    at = open_at(network=network)
    assert stages(at) == [f"{network} 32 sgd 0 1"]
    for card in (
        "Share of the step by kernel",
        "Memory",
        "Loss and accuracy",
        "Two ways to count the first convolution",
    ):
        assert f'<h2 class="kt-card">{card}</h2>' in texts(at)
    assert set(links(at)) >= {"Story", "**Explore**"}
    assert strip(at)["run"]["label"] == "Train"


def test_what_has_no_record_says_so():
    at = open_at(batch=50)
    assert "Not recorded yet for this step" in texts(at)
    assert strip(at)["sizes"][0]["time"]["value"] == "–"


def test_a_recorded_step_shows_its_times_on_the_stage_and_in_the_strip():
    at = open_at(batch=32)
    part = strip(at)["sizes"][0]
    assert part["time"]["badge"]["kind"] == "recorded" and part["memory"]["badge"]["kind"] == "recorded"
    assert [bar["current"] for bar in part["time"]["bars"]] == [False, True, False, False]
    assert sum(bool(line.get("faint")) for line in part["curve"]["lines"]) == 2
    boxes = heads(at)[0]["meta"]["diagram"]["boxes"]
    assert all(len(box["lines"]) == 2 for box in boxes if box["name"] == "kernels")
    assert "One graph takes" in texts(at)


# -- the story -----------------------------------------------------------------------------------------
def titled(title) -> int:
    return next(n for n, chapter in enumerate(CHAPTERS, 1) if chapter.title == title)


def test_play_runs_every_launch_that_the_first_chapter_counts():
    head = heads(open_at(view="story", chapter=1))[0]
    assert f"{head['meta']['steps']} [launches]" in " ".join(head["chapter"]["text"])
    assert (CHAPTERS[0].loop or (0, head["meta"]["steps"] - 1)) == (0, head["meta"]["steps"] - 1)


def test_the_right_answer_is_the_role_that_the_strip_names():
    at = open_at(view="story", chapter=titled("What must be kept"))
    memory, question = strip(at)["sizes"][0]["memory"], heads(at)[0]["chapter"]["question"]
    right = question["answers"][question["right"]]
    largest = max(memory["parts"], key=lambda part: part["share"])
    assert right == largest["label"] and f"the {right} are" in memory["text"]
    for part in memory["parts"]:
        if part["label"] in question["answers"]:
            assert part["text"] in question["reveal"]


def test_the_curve_comes_with_the_chapter_on_learning():
    for n in range(1, len(CHAPTERS) + 1):
        size = strip(open_at(view="story", chapter=n))["sizes"][0]
        assert ("curve" in size) == (n >= titled("It learns"))
        assert size.get("curve", {}).get("kind", "secret") == "secret"  # until the guess


def test_the_gradients_that_a_layer_computes_are_those_of_the_graph():
    nodes = {node.name for node in PLAN.graph.nodes}
    learning = {view.name.partition(".")[0] for view in PLAN.graph.views if view.of == "weights"}
    assert {layer for layer in learning if f"{layer} dx" not in nodes} == {"conv1"}  # the first
    assert all(nodes & {f"{layer} dw", f"{layer} dW"} for layer in learning)


def test_alone_in_a_frame_it_is_the_stage():
    at = open_at(view="watch", network="residual", keep=3)
    assert stages(at) == ["residual 32 sgd 3 1"] and "kt-card" not in texts(at)


@pytest.mark.parametrize(
    ("params", "note"),
    [
        ({"network": "alexnet"}, "network must be one of lenet5, residual"),
        ({"batch": 0}, "batch must be 1 to 65,536 on this page"),
        ({"batch": "many"}, "batch must be a whole number"),
        ({"optimizer": "rprop"}, "optimizer must be one of sgd, adam"),
        ({"lr": -1}, "lr must be 0 to"),
        ({"lr": "fast"}, "lr must be a number"),
        ({"keep": 5}, "keep must be one of 1, 2, 3, 4, 6"),
        ({"batch": 50, "parts": 4}, "parts must divide the batch, got 50 images in 4 parts"),
        ({"epochs": 1000}, "epochs must be 1 to 50"),
        (
            {"network": "transformer", "batch": 16_384},
            "block1 attention: images * heads &lt;= 65535 (grid.y), got 16384 * 4",
        ),
    ],
)
def test_a_bad_value_is_named_with_its_rule(params, note):
    at = open_at(**params)
    assert note in texts(at)
    assert len(stages(at)) == 1


def test_links_to_a_network_keep_the_other_settings():
    at = open_at(batch=20, optimizer="adam")
    assert links(at)["residual net"] == {"batch": "20", "optimizer": "adam", "network": "residual"}


# -- what cannot be trained ------------------------------------------------------------------------------
def test_more_images_than_there_are_can_be_watched_but_not_trained():
    at = open_at(batch=4096)
    run = strip(at)["run"]
    assert not run["can"] and "batch must be at most 1,500" in run["error"]
    assert stages(at) == ["lenet5 4096 sgd 0 1"]
    press(at, "run", size="stage")
    assert live.KEY not in at.session_state


def test_a_step_that_does_not_fit_says_the_bytes_and_what_would_be_saved():
    values = address.FIELDS.defaults | {"network": "residual", "batch": 128}
    needed = all_bytes("residual", 128, "sgd")
    assert address.too_large(values, needed, needed) == ""
    said = address.too_large(values, needed, needed - 1)
    assert "A step needs 7.54 MB, and 7.54 MB are free" in said
    assert "With one layer in 3 kept and the others computed again, a step needs 7.1 MB: 441 KB less." in said
    lenet = values | {"network": "lenet5"}
    assert "would not save memory here" in address.too_large(lenet, all_bytes("lenet5", 128, "sgd"), 0)
    assert "smaller batch" in address.too_large(values | {"keep": 3}, needed, 0)


# -- a training ----------------------------------------------------------------------------------------
def test_a_training_runs_to_its_end_and_is_stale_at_other_settings():
    at = open_at(**FAST)
    press(at, "run", size="stage")
    assert strip(at)["run"]["running"] and strip(at)["run"]["label"] == "Stop"
    wait(at, ended)
    found = training(at)
    assert [step for step, _ in found.points] == list(range(1, STEPS + 1)) and found.done
    assert [step for step, _ in found.accuracy] == [0, STEPS]
    part = strip(at)["sizes"][0]
    assert part["time"]["badge"]["kind"] == "measured" and part["time"]["value"] != "–"
    assert sum(row["share"] for row in part["limits"]["rows"][:3]) == pytest.approx(1)
    assert len(part["curve"]["lines"][0]["points"]) == STEPS
    boxes = heads(at)[0]["meta"]["diagram"]["boxes"]
    assert all(len(box["lines"]) == 2 for box in boxes if box["name"] == "kernels")
    assert f"After {STEPS} steps the network recognises" in texts(at)
    line = heads(at)[0]["meta"]["diagram"]["areas"][-1]
    assert line["name"] == "measured on this processor" and "Measured in one step: at most" in texts(at)
    assert set(found.held) == set(found.node_ms)

    at.session_state["lr"] = 0.07
    at.run()
    assert curve(at)["kind"] == "stale-curve" and "At other settings: residual, batch 100" in curve(at)["text"]
    assert strip(at)["run"]["label"] == "Train"


def test_a_stopped_training_goes_on_bit_by_bit(monkeypatch):
    monkeypatch.setattr(live, "Episode", partial(Episode, seconds=0.0))  # each episode takes one step
    whole = [(p.step, p.loss) for p in Training(Settings("residual", 100, "sgd", {"lr": 0.05})).run(1)]
    at = open_at(**FAST)
    press(at, "run", size="stage")
    wait(at, lambda at: training(at).points or training(at).job.parts)
    press(at, "stop", size="stage")
    wait(at, ended)
    found = training(at)
    assert not found.done and 0 < len(found.points) < STEPS
    assert "Resume continues bit for bit" in curve(at)["text"]
    assert strip(at)["run"]["label"] == "Resume"
    press(at, "run", size="stage")
    wait(at, ended)
    assert found.done and found.points == whole and strip(at)["run"]["label"] == "Train"


def test_a_diverging_training_names_the_step_and_the_first_tensor_and_stays_in_the_history():
    at = open_at(network="residual", batch=50, lr=1e6)
    press(at, "run", size="stage")
    wait(at, ended)
    assert "Diverged: step 3: " in curve(at)["error"] and "no finite number" in curve(at)["error"]
    assert training(at).points and strip(at)["run"]["label"] == "Train"
    press(at, "run", size="stage")
    assert len(at.session_state[live.HISTORY]) == 1
    wait(at, ended)
    assert "diverged" in texts(at)


def test_the_rate_of_the_chapter_that_diverges_does():
    (chapter,) = (
        c for c in CHAPTERS if "lr" in c.params and c.params["network"] == "lenet5" and "optimizer" not in c.params
    )
    at = open_at(view="story", chapter=CHAPTERS.index(chapter) + 1)
    press(at, "run", size="stage")
    wait(at, ended)
    assert "no finite number" in curve(at)["error"]


# -- the worker -----------------------------------------------------------------------------------------
class Gone:
    """A job whose process was killed."""

    done, parts, share, text = True, (), 0.0, ""

    def result(self):
        raise JobError("the process that ran training residual died (SIGKILL) while training, step 7")


def test_a_lost_process_keeps_what_came_before_and_can_be_resumed():
    state = Training(Settings("residual", 300)).state()
    found = Live(
        Settings("residual", 300), 1, points=[(1, 2.3), (2, 2.2)], state=type(state)(2, state.arrays), job=Gone()
    )
    found.poll()
    assert not found.running and found.resumable and len(found.points) == 2
    assert found.error == (
        "the process that ran training residual died (SIGKILL) while training, step 7. "
        "All steps up to 2 are kept. Resume continues there."
    )


def test_a_stop_before_the_first_step_is_no_error():
    found = Live(Settings("residual", 300), 1, job=Gone(), stopping=True)
    found.poll()
    assert found.error == "" and not found.running and not found.resumable


def test_points_of_the_running_episode_are_shown_and_not_kept_twice():
    job = Gone()
    job.done, job.parts = False, ({"points": [(3, 2.1)]}, {"points": [(4, 2.0)]})
    found = Live(Settings("residual", 300), 1, points=[(1, 2.3), (2, 2.2)], job=job)
    found.poll()
    assert [step for step, _ in found.shown()] == [1, 2, 3, 4] and len(found.points) == 2
    assert np.diff([step for step, _ in found.shown()]).tolist() == [1, 1, 1]


def test_a_training_that_was_stopped_at_other_settings_can_be_resumed_there():
    at = open_at(**FAST)
    state = Training(Settings("residual", 100, "sgd", {"lr": 0.05})).state()
    at.session_state[live.KEY] = Live(
        Settings("residual", 100, "sgd", {"lr": 0.05}), 1, points=[(1, 2.3)], state=state, stopping=True
    )
    at.run()
    assert strip(at)["run"]["label"] == "Resume" and "Resume continues bit for bit" in curve(at)["text"]
    at.session_state["lr"] = 0.07
    at.run()
    text = curve(at)["text"]
    assert strip(at)["run"]["label"] == "Train" and "Resume continues" not in text
    assert text.startswith("At other settings: residual, batch 100, sgd, lr 0.05. Stopped.")
    assert "It can be resumed at its own settings." in text


@pytest.mark.parametrize(("keep", "every"), [(1, 0), (2, 2), (6, 6)])
def test_one_layer_in_so_many_keeps_its_result(keep, every):
    assert address.memory(address.FIELDS.defaults | {"keep": keep}).every == every


def test_what_was_learned_is_the_last_accuracy():
    found = Live(Settings("lenet5", 32, "sgd", {"lr": 0.05}, 0), 1)
    found.points, found.accuracy = [(1, 2.3), (46, 0.2)], [(0, 0.1), (46, 0.9)]
    assert "After 46 steps the network recognises 90 %" in cards._learned(found)
