"""Collectives on the GPUs of this machine: needs two."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernels.collectives import gpus as collective_gpus
from kernels.collectives import kernels
from kernels.collectives.executor import CollectiveError
from kernels.collectives.gpus import GRAPH, NCCL, Gpus
from kernels.collectives.kernels import KERNELS
from kernels.collectives.shape import ALGORITHMS, ALL_REDUCE, ITEM, RING
from kernels.engines.cuda import devices
from kernels.model.program import RuleError

COUNT = devices.count()
SIZES = (1, 7, 64, 1000, 4099, 65_536, 1_000_003, 1 << 20)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(COUNT < 2, reason="this machine has fewer than two GPUs")]


@pytest.fixture(scope="module")
def gpus():
    found = Gpus(min(COUNT, kernels.MAX_PEERS), max(SIZES))
    yield found
    found.close()


@pytest.mark.parametrize("algorithm", KERNELS)
def test_a_kernel_is_right_on_every_gpu(gpus, algorithm):
    for elements, seed in itertools.product(SIZES, range(3)):
        assert collective_gpus.verify(gpus, ALL_REDUCE, algorithm, elements, seed) <= 1


@pytest.mark.parametrize("most_blocks", [1, 3, kernels.MAX_BLOCKS])
def test_any_number_of_blocks_and_slices(gpus, most_blocks):
    for slices in (64, 4096):
        assert collective_gpus.verify(gpus, ALL_REDUCE, RING, 1 << 20, most_blocks=most_blocks, SLICE=slices) <= 1


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_nccl_is_right_on_every_gpu(gpus, kind):
    try:
        assert collective_gpus.verify(gpus, kind, NCCL, 4096 * gpus.ranks) <= 1
    except RuleError as error:
        if "NCCL was not found" not in str(error):
            raise
        pytest.skip(str(error))


def test_many_runs_in_a_row_and_in_graphs(gpus):
    for algorithm in KERNELS:
        row = collective_gpus.measure(gpus, ALL_REDUCE, algorithm, 4096, GRAPH, 3)
        assert row["n"] == 3 and row["bytes"] == 4096 * ITEM


def test_a_gpu_that_never_comes_is_an_error_and_not_a_hang(monkeypatch):
    monkeypatch.setattr(kernels, "PATIENCE_S", 0.2)
    gpus = Gpus(2, 4096)
    for algorithm in KERNELS:
        gpus.put([np.ones(4096, np.float32)] * 2)
        gpus.parts(algorithm, 4096)(0)  # rank 1 launches nothing
        gpus.devices.wait()
        with pytest.raises(CollectiveError, match="rank 0 waited in vain"):
            gpus.check(algorithm)
        assert collective_gpus.verify(gpus, ALL_REDUCE, algorithm, 4096) <= 1
    gpus.close()
