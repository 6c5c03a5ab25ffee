"""Every page as it is on a machine with a GPU, cuDNN and PyTorch, where none of them is."""

from __future__ import annotations

from functools import partial

import pytest
import streamlit as st

from kernels.jobs import Worker
from pages import _run
from tests import fake_gpu
from tests.app.gpu_scenarios import *  # noqa: F403  the tests themselves


@pytest.fixture(autouse=True, scope="module")
def device():
    """The name of a GPU that is made up; its runs are answered with rows that are, too."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, stand_in in fake_gpu.replaced():
            patch.setattr(module, name, stand_in)
        patch.setattr(_run, "Worker", partial(Worker, module="tests.children.gpu_rows"))
        _run.worker.clear()
        st.cache_data.clear()
        yield fake_gpu.DEVICE
    _run.worker().close()
    _run.worker.clear()
    st.cache_data.clear()
