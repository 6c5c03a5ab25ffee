"""An app without a GPU and a pool with two: the reader chooses a device, and Run measures there.

Scheduler, workers and app are real processes; the GPUs and their rows are stand-ins (tests.children.gpu_worker).
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from kernels.jobs.pool import Pool
from tests.helpers.harness import Stage, serving
from tests.helpers.pool import running, until

DEVICES = ("", "NVIDIA H200 9.0", "NVIDIA A100 8.0")
SLOW_MS = 180_000  # a busy machine: the child of a worker imports what a run needs


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with running(tmp_path_factory.mktemp("pool"), *DEVICES) as machines:
        pool = Pool(machines.address)
        until(lambda: len(pool.machines()) == len(DEVICES))
        pool.close()
        with serving(jobs=machines.address) as server:
            yield server.url


@pytest.mark.browser
def test_a_run_is_measured_on_the_chosen_device(url: str, page: Page) -> None:
    page.goto(f"{url}/tiling?view=explore&M=256&N=256&K=256&rung=mma-sync&dtype=fp16&machine=NVIDIA+A100")
    Stage(page).ready()
    page.locator(".st-key-run_options button").first.click()
    expect(page.get_by_text("cuda runs on NVIDIA A100, a machine of the pool.")).to_be_visible(timeout=SLOW_MS)
    chosen = page.get_by_role("radio", name="NVIDIA A100")
    expect(chosen).to_be_checked()
    page.keyboard.press("Escape")
    page.locator("[data-strip=run]").click()
    badge = page.locator(".st-key-card_time .kt-badge-measured")
    expect(badge).to_contain_text("measured NVIDIA A100", timeout=SLOW_MS)
