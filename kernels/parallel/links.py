"""The links between GPUs and the time of a collective over them, predicted.

Inside a node of eight GPUs: NVLink. Two of its constants follow from NCCL's all-reduce on two H200s, 26 us for 64 KiB and
325 GB/s for 1 GiB, and one from copies between them, 393 GB/s. The latency of a hop is that which NCCL's tuning assumes
(src/graph/tuning.cc, its protocol Simple: 3.4 us over NVLink, 14 us over a network). Between nodes: a network card of 400 Gbit/s for each GPU, as
in a DGX H200.
"""

from __future__ import annotations

from kernels.collectives.cost import Link, seconds, traffic
from kernels.collectives.recorded import SEEN
from kernels.collectives.shape import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, RING, TREE

NODE = 8  # GPUs that NVLink joins
(KIB_64, SMALL_S), (GIB, LARGE_S) = SEEN  # bytes and seconds of NCCL's all-reduce on two H200s
COPY_BANDWIDTH = 393e9  # bytes per second from one H200's memory to another's
HOP_S, NETWORK_HOP_S = 3.4e-6, 14e-6
NETWORK_BANDWIDTH = 400e9 / 8


def _nvlink() -> Link:
    """Returns the link at which an all-reduce over two GPUs takes the two measured times."""
    rounds = 2
    bandwidth = (GIB - KIB_64) / (LARGE_S - SMALL_S)
    return Link(HOP_S, bandwidth, SMALL_S - KIB_64 / bandwidth - rounds * HOP_S)


NVLINK = _nvlink()
NETWORK = Link(NETWORK_HOP_S, NETWORK_BANDWIDTH)  # its start is that of the whole collective
FLAT, NODES = "flat", "nodes"  # one ring over all GPUs; within nodes first, then between them
TOPOLOGIES = (FLAT, NODES)


def collective_us(kind: str, ranks: int, nbytes: float, topology: str = NODES) -> float:
    """Returns the predicted microseconds of a collective over so many GPUs. `nbytes` is the length of each array.

    Up to NODE GPUs are joined by NVLink. A flat ring over more takes as many rounds as it has GPUs, at the speed of the
    network. By nodes, a reduce-scatter and an all-gather run inside each node, and between the nodes the faster of ring and
    tree runs on a part of the array for each GPU.
    """
    if ranks < 2 or nbytes <= 0:
        return 0.0
    if ranks <= NODE:
        return 1e6 * seconds(traffic(kind, RING, ranks, nbytes), NVLINK)
    if topology == FLAT:
        slow = Link(NETWORK.latency, NETWORK.bandwidth, NVLINK.start)
        return 1e6 * seconds(traffic(kind, RING, ranks, nbytes), slow)
    return 1e6 * (NVLINK.start + _inside(kind, nbytes) + _between(kind, -(-ranks // NODE), nbytes / NODE))


def _inside(kind: str, nbytes: float) -> float:
    """Returns the seconds of the parts of a collective that run inside a node."""
    parts = {ALL_REDUCE: (REDUCE_SCATTER, ALL_GATHER)}.get(kind, (kind,))
    link = Link(NVLINK.latency, NVLINK.bandwidth)
    return sum(seconds(traffic(part, RING, NODE, nbytes), link) for part in parts)


def _between(kind: str, nodes: int, nbytes: float) -> float:
    algorithms = (RING, TREE) if kind == ALL_REDUCE else (RING,)
    return min(seconds(traffic(kind, algorithm, nodes, nbytes), NETWORK) for algorithm in algorithms)


def send_us(nbytes: float) -> float:
    """Returns the predicted microseconds of a message from one GPU to its neighbour."""
    return 1e6 * (NVLINK.start + HOP_S + nbytes / COPY_BANDWIDTH)
