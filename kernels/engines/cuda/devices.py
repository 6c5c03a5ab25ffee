"""Several GPUs of one process: they reach each other's memory, and each has a stream. NCCL over them, through CuPy."""

from __future__ import annotations

import ctypes
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.engines.cuda.compile import compile_kernel
from kernels.engines.cuda.device import load, refused_when_full
from kernels.i18n import decimal, tr
from kernels.machine import driver as machine_driver
from kernels.model.program import RuleError

if TYPE_CHECKING:
    import cupy

DEADLINE_S = 20.0  # that a collective takes at most
POLL_S = 20e-6
ALREADY = "PeerAccessAlreadyEnabled"
# NCCL reads this when its first communicator is made. Sums inside the switch (NVLink multicast) stay off.
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")


class DevicesHung(Exception):
    """GPUs that did not end in time, as a sentence. Their process cannot be used again: it must be killed."""


def count() -> int:
    """Returns how many GPUs CUDA sees; 0 if none can be used."""
    found = machine_driver.find()
    return 0 if isinstance(found, machine_driver.GpuUnavailable) else found.count


def refusal(ranks: int) -> str:
    """Returns why this machine cannot run a collective over so many GPUs, "" if nothing is known against it."""
    found = machine_driver.find()
    if isinstance(found, machine_driver.GpuUnavailable):
        return found.text
    if found.count < ranks:
        return tr("{ranks} GPUs are needed, this machine has {count}", ranks=ranks, count=found.count)
    return ""


class Devices:
    """GPUs 0 .. ranks - 1, each with a stream. With `peers` they read and write each other's memory; NCCL does without.
    RuleError says what is missing."""

    def __init__(self, ranks: int, peers: bool = True):
        cupy = load()
        there = cupy.cuda.runtime.getDeviceCount()
        if there < ranks:
            raise RuleError(tr("{ranks} GPUs are needed, this machine has {count}", ranks=ranks, count=there))
        self.ranks, self._cupy = ranks, cupy
        self.streams: list[cupy.cuda.Stream] = []
        for rank in range(ranks):
            with cupy.cuda.Device(rank):
                self.streams.append(cupy.cuda.Stream(non_blocking=True))
        for a, b in itertools.permutations(range(ranks if peers else 0), 2):
            self._connect(a, b)

    def _connect(self, a: int, b: int) -> None:
        """Let GPU a reach the memory of GPU b."""
        runtime = self._cupy.cuda.runtime
        if not runtime.deviceCanAccessPeer(a, b):
            raise RuleError(tr("GPU {a} cannot reach the memory of GPU {b}: nothing connects them directly", a=a, b=b))
        with self._cupy.cuda.Device(a):
            try:
                runtime.deviceEnablePeerAccess(b)
            except runtime.CUDARuntimeError as error:
                if ALREADY not in str(error):
                    raise

    @contextmanager
    def on(self, rank: int) -> Iterator[cupy.cuda.Stream]:
        """Make a GPU and its stream the current ones, and yield the stream."""
        with self._cupy.cuda.Device(rank), self.streams[rank] as stream:
            yield stream

    def name(self, rank: int) -> str:
        """Returns the name of a GPU."""
        name = self._cupy.cuda.runtime.getDeviceProperties(rank)["name"]
        return name.decode() if isinstance(name, bytes) else name

    def empty(self, rank: int, size: int | tuple[int, ...], dtype: np.dtype | type | str) -> cupy.ndarray:
        """Returns an array on a GPU, its content unknown. RuleError if the memory is full."""
        with self.on(rank), refused_when_full():
            return self._cupy.empty(size, dtype)

    def free(self) -> None:
        """Give the memory of arrays that are no longer used back to the GPUs: other runs of this process need it."""
        for rank in range(self.ranks):
            with self.on(rank):
                self._cupy.get_default_memory_pool().free_all_blocks()

    def fill(self, rank: int, array: cupy.ndarray, byte: int) -> None:
        """Queue a fill of every byte: 0xFF makes float32 NaN."""
        with self.on(rank) as stream:
            array.data.memset_async(byte, array.nbytes, stream)

    def kernel(self, rank: int, source: str, entry: str, defines: tuple[tuple[str, int], ...]) -> cupy.RawKernel:
        """Returns a kernel loaded on a GPU. Each GPU has a module of its own."""
        with self.on(rank):
            kernel = compile_kernel.__wrapped__(source, entry, defines)
            kernel.attributes  # noqa: B018  loads it now: a load while another GPU waits in a kernel would be late
            return kernel

    def launcher(
        self, rank: int, kernel: cupy.RawKernel, grid: Sequence[int], block: Sequence[int], args: Sequence[object]
    ) -> Callable[[], None]:
        """Returns a function that queues a kernel on a GPU. Its arguments are packed once, and the driver is called without
        CuPy's checks. It leaves that GPU's context current, so call it through `all_of`."""
        driver = self._cupy.cuda.driver
        with self.on(rank) as stream:
            function, context = kernel.kernel.ptr, driver.ctxGetCurrent()
        values = [np.array(a) for a in args]
        pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
        call = partial(driver.launchKernel, function, *grid, *block, 0, stream.ptr, ctypes.addressof(pointers), 0)

        def launch(memory: object = (values, pointers)) -> None:  # `memory` lives as long as the function
            driver.ctxSetCurrent(context)
            call()

        return launch

    def all_of(self, launchers: Sequence[Callable[[], None]]) -> Callable[[], None]:
        """Returns a function that calls launchers, then makes the context current that is current now."""
        driver = self._cupy.cuda.driver
        with self._cupy.cuda.Device(0):
            home = driver.ctxGetCurrent()

        def run() -> None:
            for launch in launchers:
                launch()
            driver.ctxSetCurrent(home)

        return run

    def wait(self, deadline_s: float = DEADLINE_S) -> None:
        """Wait until every GPU has ended what is queued. DevicesHung after the deadline."""
        end = time.monotonic() + deadline_s
        for rank, stream in enumerate(self.streams):
            while not stream.done:
                if time.monotonic() > end:
                    raise DevicesHung(
                        tr(
                            "GPU {rank} did not end within {seconds} s: another GPU or its link may be lost",
                            rank=rank,
                            seconds=decimal(f"{deadline_s:g}"),
                        )
                    )
                time.sleep(POLL_S)
            with self.on(rank):
                stream.synchronize()  # reports an error of the GPU

    def seconds(self, run: Callable[[], None], times: int = 1, deadline_s: float = DEADLINE_S) -> float:
        """Returns the seconds of one run on the GPU that took longest, by events around `times` runs in a row."""
        events = []
        for rank in range(self.ranks):
            with self.on(rank):
                events.append((self._cupy.cuda.Event(), self._cupy.cuda.Event()))
        for rank, (start, _) in enumerate(events):
            with self.on(rank) as stream:
                start.record(stream)
        for _ in range(times):
            run()
        for rank, (_, end) in enumerate(events):
            with self.on(rank) as stream:
                end.record(stream)
        self.wait(deadline_s)
        elapsed = self._cupy.cuda.get_elapsed_time
        return max(elapsed(start, end) for start, end in events) / times / 1e3

    def graphs(self, run_rank: Callable[[int], None], times: int) -> Callable[[], None]:
        """Returns a function that launches `times` runs on each GPU as one CUDA graph. `run_rank` queues the part of one
        GPU, which is captured and not run."""
        captured = []
        for rank in range(self.ranks):
            with self.on(rank) as stream:
                stream.begin_capture()
                try:
                    for _ in range(times):
                        run_rank(rank)
                finally:
                    captured.append(stream.end_capture())

        def launch() -> None:
            for rank, graph in enumerate(captured):
                with self.on(rank) as stream:
                    graph.launch(stream)

        return launch

    def joint_graph(self, run_rank: Callable[[int], None], times: int) -> Callable[[], None]:
        """Returns a function that launches `times` runs on all GPUs as one CUDA graph. Capturing begins on GPU 0; the streams
        of the others join it through events."""
        first = self.streams[0]
        events = []
        for rank in range(self.ranks):
            with self.on(rank):
                events.append(self._cupy.cuda.Event(disable_timing=True))
        with self.on(0):
            first.begin_capture()
            try:
                events[0].record(first)
                for rank in range(1, self.ranks):
                    self.streams[rank].wait_event(events[0])
                for rank, _ in itertools.product(range(self.ranks), range(times)):
                    run_rank(rank)
                for rank in range(1, self.ranks):
                    with self.on(rank) as stream:
                        events[rank].record(stream)
                    first.wait_event(events[rank])
            finally:
                graph = first.end_capture()

        def launch() -> None:
            with self.on(0) as stream:
                graph.launch(stream)

        return launch

    def copy(self, to: cupy.ndarray, to_rank: int, source: cupy.ndarray, from_rank: int) -> None:
        """Queue a copy of an array between two GPUs, or within one, on the stream of the one that sends."""
        with self.on(from_rank) as stream:
            if to_rank == from_rank:
                to.data.copy_from_device_async(source.data, source.nbytes, stream)
                return
            self._cupy.cuda.runtime.memcpyPeerAsync(
                to.data.ptr, to_rank, source.data.ptr, from_rank, source.nbytes, stream.ptr
            )


# -- NCCL ------------------------------------------------------------------------------------------
OfRank = Callable[[Any, int, int], None]  # with a communicator of NCCL, a rank and a stream


def nccl() -> ModuleType:
    """Returns CuPy's NCCL. RuleError if it is not installed."""
    load()
    from cupy.cuda import nccl as found

    if not found.available:
        raise RuleError(tr("NCCL was not found on this machine (pip install nvidia-nccl-cu13 installs it)"))
    return found


def nccl_version() -> str | None:
    """Returns NCCL's version, such as "2.28.3"; None if it is missing."""
    try:
        number = nccl().get_version()
    except (RuleError, ImportError, AttributeError):
        return None
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"


class Nccl:
    """NCCL's collectives over all GPUs of a process. Arrays are float32 on their GPU, one for each rank."""

    def __init__(self, devices: Devices):
        self._nccl, self.devices = nccl(), devices
        self._comms = self._nccl.NcclCommunicator.initAll(list(range(devices.ranks)))

    def _each(self, call: OfRank) -> None:
        """Call for every rank: its communicator, rank and stream. NCCL begins once all calls are made."""
        self._nccl.groupStart()
        for rank in range(self.devices.ranks):
            self.one(call, rank)
        self._nccl.groupEnd()

    def one(self, call: OfRank, rank: int, stream: cupy.cuda.Stream | None = None) -> None:
        """Call for one rank, on its own stream or on another one."""
        call(self._comms[rank], rank, (stream or self.devices.streams[rank]).ptr)

    def runner(self, kind: str, inputs: Sequence[cupy.ndarray], outputs: Sequence[cupy.ndarray]) -> Callable[[], None]:
        """Returns a function that queues a collective on all GPUs."""
        call = self.call(kind, inputs, outputs)
        return lambda: self._each(call)

    def call(self, kind: str, inputs: Sequence[cupy.ndarray], outputs: Sequence[cupy.ndarray]) -> OfRank:
        """Returns a function that queues one rank's part of a collective. Chunks lie as in schedules: at their place in
        an array of the whole length. RuleError if the length is no multiple of the ranks, where NCCL needs that."""
        ranks, n = self.devices.ranks, inputs[0].size
        f32, plus = self._nccl.NCCL_FLOAT32, self._nccl.NCCL_SUM
        if kind not in ("all-reduce", "broadcast") and n % ranks:
            raise RuleError(tr("NCCL needs elements % ranks == 0, got {n} % {ranks}", n=n, ranks=ranks))
        part = n // ranks
        step = part * np.dtype(np.float32).itemsize
        into, out = [a.data.ptr for a in inputs], [a.data.ptr for a in outputs]

        def all_to_all(c, r: int, s: int) -> None:
            for peer in range(ranks):
                c.send(into[r] + peer * step, part, f32, peer, s)
                c.recv(out[r] + peer * step, part, f32, peer, s)

        return {
            "all-reduce": lambda c, r, s: c.allReduce(into[r], out[r], n, f32, plus, s),
            "reduce-scatter": lambda c, r, s: c.reduceScatter(into[r], out[r] + r * step, part, f32, plus, s),
            "all-gather": lambda c, r, s: c.allGather(into[r] + r * step, out[r], part, f32, s),
            "broadcast": lambda c, r, s: c.broadcast(into[r], out[r], n, f32, 0, s),
            "all-to-all": all_to_all,
        }[kind]

    def close(self) -> None:
        """Ends the communicators."""
        for comm in self._comms:
            comm.destroy()
