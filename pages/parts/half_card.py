"""What the cards on kernels in FP16 share: the badge of their times, and the listing of a kernel that the reader chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from kernels import sources
from kernels.i18n import tr
from kernels.model.row import Row
from pages.parts.lesson import deferred_loaded
from visuals import units
from visuals.charts import sweeps


def badge(measured: Sequence[Row]) -> str:
    """Returns the HTML that says how the times were measured; "" without any."""
    return f'<p class="kt-figures">{units.badge("recorded", sweeps.provenance(measured))}</p>' if measured else ""


def listing(files: Callable[[], Mapping[str, str]], key: str) -> None:
    """Draws the choice of a kernel, and the listing of the one that is chosen. `files()`: the sources by a file's name."""
    if deferred_loaded():
        st.fragment(_source)(files(), key)


def _source(by_name: Mapping[str, str], key: str) -> None:
    name = st.selectbox(tr("CUDA C++ of a kernel"), list(by_name), index=None, placeholder=tr("choose a file"), key=key)
    if name:
        st.code(sources.text(by_name[name]), language="cpp", line_numbers=True)
