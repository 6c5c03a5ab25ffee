"""The run of a parallel step on the GPUs of this machine: the rows of the job that the strip's button starts."""

from __future__ import annotations

from kernels.engines.cuda import devices
from kernels.i18n import tr
from kernels.jobs.parallel_step import ParallelStep
from kernels.parallel.plan import Plan
from kernels.parallel.split_devices import RUNNABLE
from pages.parts.one_run import Row, one_run
from visuals.strip.strip import Run

KEY = "parallel_step"  # of the run in the session


def measured(plan: Plan) -> dict[Plan, Row]:
    """Returns the rows of a step that ran here, of one GPU and of several; {} before it ran."""
    return {_plan(row): row for row in one_run(KEY).rows(ParallelStep(plan))}


def _plan(row: Row) -> Plan:
    """Returns the step of a row."""
    return Plan(*(row[name] for name in ("network", "way", "gpus", "batch", "micro", "bucket_bytes", "optimizer")))


def refusal(plan: Plan) -> str:
    """Returns why a step cannot run on the GPUs of this machine; "" if it can."""
    if plan.way not in RUNNABLE:
        return tr("sharded state runs on a processor only")
    return devices.refusal(plan.gpus)


def run_of(plan: Plan) -> Run:
    """Returns the state of the button: a run on the GPUs, or why there is none."""
    run = one_run(KEY)
    if run.running and run.request.plan == plan:
        return Run(can=True, running=True, share=run.share, text=run.text())
    why = refusal(plan)
    text = tr("Not measured here: {why}.", why=why) if why else ""
    return Run(text=text, error=run.error_of(ParallelStep(plan)))
