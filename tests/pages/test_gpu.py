"""Every page on a simulated machine with a GPU, cuDNN and PyTorch."""

from __future__ import annotations

from functools import partial

import pytest
import streamlit as st

from kernels.jobs import here
from kernels.jobs.worker import Worker
from pages.parts.worker import worker
from tests.helpers import fake_gpu
from tests.helpers.gpu_scenarios import *  # noqa: F403  the tests themselves


@pytest.fixture(autouse=True, scope="module")
def device():
    """Yields the name of a simulated GPU. Its runs return rows with invented times."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, replacement in fake_gpu.replacements():
            patch.setattr(module, name, replacement)
        patch.setattr(here, "Worker", partial(Worker, module="tests.children.gpu_rows"))
        forget()
        yield fake_gpu.DEVICE
    worker().close()
    forget()


def forget() -> None:
    """Forgets what pages have found out about their machine."""
    st.cache_resource.clear()
    st.cache_data.clear()
