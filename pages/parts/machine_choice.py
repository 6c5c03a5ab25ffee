"""The machine that a reader's runs go to: any of the pool, those with one kind of device, or this one. A control where
there is a pool."""

from __future__ import annotations

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kernels import engines
from kernels.i18n import tr
from kernels.jobs.job import Job, Work
from kernels.jobs.pool import THIS_MACHINE
from kernels.machine import elsewhere
from kernels.machine.elsewhere import Machine
from pages.parts.controls import option
from pages.parts.query import chosen
from pages.parts.worker import machines, worker

PARAM = "machine"  # of a URL
ANY = "any"


def choices() -> list[str]:
    """Returns what a reader can choose: any machine, the kinds of devices of the pool, this machine. Nothing without a
    pool."""
    found = machines()
    return [] if found is None else [ANY, *found, THIS_MACHINE]


def wanted() -> str:
    """Returns the reader's choice; "" for any machine, or without a pool."""
    known = choices()
    choice = chosen(PARAM, known) if known else ANY
    return "" if choice == ANY else choice


def of_reader() -> Machine | None:
    """Returns the machine whose engines the pages of this session offer, None for this one. If any will do, it is the one
    whose GPU can run most kernels: a run names the kernels that another GPU refuses."""
    known = machines()
    if not known or get_script_run_ctx(suppress_warning=True) is None:
        return None
    choice = wanted()
    if choice:
        return known.get(choice)
    return max(known.values(), key=lambda machine: machine.gpu.capability if machine.gpu else (0, 0))


def control() -> None:
    """Draws the choice, and says where the cuda engine runs."""
    if known := choices():
        option(PARAM, known)
    there, gpu = elsewhere.chosen(), engines.load("cuda").status()
    if there and gpu.ready:
        where = (
            tr("cuda runs on {gpu}, a machine of the pool.", gpu=gpu.text)
            if wanted()
            else tr("cuda runs on a free GPU of the pool. Kernels are offered by the rules of {gpu}.", gpu=gpu.text)
        )
        st.caption(where)


def submit(request: Work, owner: str, fresh: bool = False) -> Job:
    """Queues a request for the machine that the reader chose. JobError says why it cannot."""
    device = wanted()
    return worker().submit(request, owner=owner, fresh=fresh, **({"device": device} if device else {}))


elsewhere.follow(of_reader)
