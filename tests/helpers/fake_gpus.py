"""CuPy with several GPUs that are emulated: arrays are in one emulated memory, and kernels run in the emulator.

Work is queued by stream. A kernel of a rank waits until every rank has one to run; then all run at once. Times are invented:
a kernel takes four milliseconds.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernels.engines.cuda import devices as cuda_devices
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.launch import Options, device_memory, launch_ranks
from kernels.engines.emulator.memory import ALLOCATED, GLOBAL_BASE, WRITTEN

KERNEL_S = 4e-3


class RuntimeError_(RuntimeError):
    """Stands for cupy.cuda.runtime.CUDARuntimeError."""


class Array:
    """Elements begin .. begin + size - 1 of a buffer in the emulated memory."""

    def __init__(self, gpus: FakeGpus, offset: int, size: int, dtype: np.dtype):
        self._gpus, self._offset, self.size, self.dtype = gpus, offset, size, dtype
        self.nbytes = size * dtype.itemsize
        self.data = SimpleNamespace(
            ptr=GLOBAL_BASE + offset, memset_async=self._memset, copy_from_device_async=self._copy_from
        )

    def __getitem__(self, part: slice) -> Array:
        begin, end, _ = part.indices(self.size)
        return Array(self._gpus, self._offset + begin * self.dtype.itemsize, max(end - begin, 0), self.dtype)

    @property
    def bytes(self) -> np.ndarray:
        return self._gpus.memory.bytes[self._offset : self._offset + self.nbytes]

    def _write(self, content: np.ndarray) -> None:
        self.bytes[:] = content
        self._gpus.memory.state[self._offset : self._offset + self.nbytes] = WRITTEN

    def set(self, array: np.ndarray, stream: Any) -> None:
        content = np.frombuffer(array.tobytes(), np.uint8)
        stream.queue(lambda: self._write(content))

    def get(self, stream: Any) -> np.ndarray:
        stream.run()
        return self.bytes.copy().view(self.dtype)

    def _copy_from(self, source: Any, nbytes: int, stream: Stream) -> None:
        self._gpus._copy(self.data.ptr, stream.rank, source.ptr, stream.rank, nbytes, stream.ptr)

    def _memset(self, byte: int, nbytes: int, stream: Any) -> None:
        assert nbytes == self.nbytes
        stream.queue(lambda: self._write(np.full(nbytes, byte, np.uint8)))


class Stream:
    """A queue of work of one GPU."""

    def __init__(self, gpus: FakeGpus, non_blocking: bool = False):
        self.gpus, self.rank = gpus, gpus.current[-1]
        self.ptr = 1000 + self.rank
        self.work: deque[Any] = deque()
        self.now, self.captured = 0.0, None
        self.joined: list[Stream] = []  # to this stream's capture, through events
        self.rejoined: list[Stream] = []
        gpus.streams[self.rank] = self

    def __enter__(self) -> Stream:
        assert self.gpus.current[-1] == self.rank, "the stream is of another GPU"
        self.gpus.stream.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self.gpus.stream.pop()

    def queue(self, what: Any) -> None:
        (self.work if self.captured is None else self.captured).append(what)

    def run(self) -> None:
        self.gpus.run()

    @property
    def done(self) -> bool:
        self.run()
        return not self.work

    def synchronize(self) -> None:
        assert self.done

    def begin_capture(self) -> None:
        self.captured = []

    def end_capture(self) -> Any:
        assert set(self.joined) == set(self.rejoined), "a stream that joined the capture did not return to it"
        works = []
        for each in (self, *self.joined):
            works += [(each, what) for what in each.captured]
            each.captured = None
        self.joined, self.rejoined = [], []
        return SimpleNamespace(launch=lambda stream: [own.queue(what) for own, what in works])

    def wait_event(self, event: Event) -> None:
        assert event.by, "the event was not recorded in a capture"
        if self.captured is None:
            self.captured = []
            event.by.joined.append(self)
        else:
            self.rejoined.append(event.by)


class Event:
    """A moment of a stream."""

    def __init__(self, disable_timing: bool = False):
        self.at, self.by = None, None

    def record(self, stream: Stream) -> None:
        if stream.captured is not None:
            self.by = stream
            return

        def stamp() -> None:
            self.at = stream.now

        stream.queue(stamp)


class Kernel:
    """A kernel loaded on one GPU."""

    def __init__(self, gpus: FakeGpus, rank: int, source: str, entry: str, defines: Any):
        self.gpus, self.rank, self.what = gpus, rank, (source, entry, defines)

    def __call__(self, grid: Any, block: Any, args: Any) -> None:
        stream = self.gpus.stream[-1]
        assert stream.rank == self.rank, "the kernel is loaded on another GPU"
        plain = [a[()] if isinstance(a, np.ndarray) else a for a in args]
        stream.queue((self.what, grid, (64, 1, 1), [*plain[:-1], np.int64(self.gpus.patience)]))


class FakeGpus:
    """A module like CuPy. `lost`: a rank whose kernels never run. `apart`: a pair that cannot reach each other."""

    def __init__(self, count: int, apart: tuple[int, int] | None = None, patience: int = 2000):
        self.count, self.apart, self.patience = count, apart, patience
        self.memory = device_memory({"start": np.zeros(1, np.float32)}, ["start"])
        self.current, self.stream, self.streams = [0], [], {}
        self.lost: int | None = None
        self.hangs = False
        self.connected: set[tuple[int, int]] = set()
        self._names = itertools.count()
        self.freed: list[int] = []  # the GPUs whose unused memory was given back
        runtime = SimpleNamespace(
            getDeviceCount=lambda: count,
            getDeviceProperties=lambda rank: {"name": b"NVIDIA Pretence"},
            CUDARuntimeError=RuntimeError_,
            memcpyPeerAsync=self._copy,
            deviceCanAccessPeer=lambda a, b: int((a, b) != apart),
            deviceEnablePeerAccess=self._connect,
        )
        driver = SimpleNamespace(ctxGetCurrent=lambda: self.current[-1], ctxSetCurrent=self._set_current)
        self.cuda = SimpleNamespace(
            driver=driver,
            Device=self._device,
            Stream=lambda non_blocking: Stream(self),
            Event=Event,
            runtime=runtime,
            set_allocator=lambda allocator: None,
            get_elapsed_time=lambda a, b: 1e3 * (b.at - a.at),
        )

    @contextmanager
    def _device(self, rank: int):
        self.current.append(rank)
        yield
        self.current.pop()

    def _set_current(self, rank: int) -> None:
        self.current[-1] = rank

    def _connect(self, peer: int) -> None:
        pair = self.current[-1], peer
        if pair in self.connected:
            raise RuntimeError_("cudaErrorPeerAccessAlreadyEnabled: peer access is already enabled")
        self.connected.add(pair)

    def empty(self, size: int, dtype: Any) -> Array:
        dtype = np.dtype(dtype)
        offset = self.memory.add(f"array {next(self._names)}", size * dtype.itemsize, b"")
        self.memory.state[offset : offset + size * dtype.itemsize] = ALLOCATED
        return Array(self, offset, size, dtype)

    def get_default_memory_pool(self) -> Any:
        return SimpleNamespace(free_all_blocks=lambda: self.freed.append(self.current[-1]))

    def _copy(self, to: int, to_rank: int, source: int, from_rank: int, nbytes: int, stream: int) -> None:
        def copy() -> None:
            b, state = self.memory.bytes, self.memory.state
            at, start = to - GLOBAL_BASE, source - GLOBAL_BASE
            self.streams[stream - 1000].now += KERNEL_S
            b[at : at + nbytes], state[at : at + nbytes] = b[start : start + nbytes].copy(), WRITTEN

        self.streams[stream - 1000].queue(copy)

    def install(self, monkeypatch: Any, nccl_is_wrong: bool = False) -> None:
        """Puts these GPUs in the place of CuPy."""
        monkeypatch.setattr(cuda_devices, "load", lambda: self)
        monkeypatch.setattr(cuda_devices, "nccl", lambda: FakeNccl(self, nccl_is_wrong))
        monkeypatch.setattr(cuda_devices.Devices, "kernel", lambda devices, *args: self.kernel(devices, *args))
        monkeypatch.setattr(cuda_devices.Devices, "launcher", lambda devices, *args: self.launcher(*args))

    def launcher(self, rank: int, kernel: Kernel, grid: Any, block: Any, args: Any) -> Callable[[], None]:
        """Replaces Devices.launcher."""

        def launch() -> None:
            self.cuda.driver.ctxSetCurrent(rank)
            with self.streams[rank]:
                kernel(grid, block, args)

        return launch

    def kernel(self, devices: Any, rank: int, source: str, entry: str, defines: Any) -> Kernel:
        """Replaces Devices.kernel."""
        return Kernel(self, rank, source, entry, defines)

    # -- running -----------------------------------------------------------------------------------
    def run(self) -> None:
        """Run what is queued, until a kernel waits for one of another GPU that was never queued."""
        while not self.hangs:
            for stream in self.streams.values():
                while stream.work and callable(stream.work[0]):
                    stream.work.popleft()()
            waiting = [s for s in self.streams.values() if s.work and s.rank != self.lost]
            if not waiting or len(waiting) < self.count - (self.lost is not None):
                return
            self._launch(waiting)

    def _launch(self, streams: list[Stream]) -> None:
        """Run the next kernel of every GPU."""
        launches = [s.work.popleft() for s in streams]
        if any(isinstance(x, Group) for x in launches):
            nccl_calls(self, [x.calls for x in launches])
        else:
            (source, entry, defines), grid, block, _ = launches[0]
            assert {x[:3] for x in launches} == {launches[0][:3]}, "the ranks run different kernels"
            launch_ranks(
                precompiled.ptx(source, defines),
                entry,
                grid,
                block,
                [x[3] for x in launches],
                self.memory,
                options=Options(count=False),
            )
        for stream in streams:
            stream.now += KERNEL_S


# -- NCCL ----------------------------------------------------------------------------------------
class Group:
    """One rank's calls of NCCL between groupStart and groupEnd: (name, arguments)."""

    def __init__(self, calls: list[tuple[str, tuple]]):
        self.calls = calls


class FakeNccl:
    """A module like cupy.cuda.nccl. `wrong`: its sums miss the last rank."""

    available, NCCL_FLOAT32, NCCL_SUM = True, 7, 0

    def __init__(self, gpus: FakeGpus, wrong: bool = False):
        self.gpus, self.wrong, self.open = gpus, wrong, {}
        gpus.nccl = self
        self.NcclCommunicator = SimpleNamespace(initAll=lambda ranks: [Communicator(self, r) for r in ranks])

    def get_version(self) -> int:
        return 22803

    def groupStart(self) -> None:
        self.open = {rank: [] for rank in self.gpus.streams}

    def groupEnd(self) -> None:
        for rank, calls in self.open.items():
            self.gpus.streams[rank].queue(Group(calls))
        self.open = {}


class Communicator:
    """Any call is kept until the group ends, or queued alone where there is no group."""

    def __init__(self, nccl: FakeNccl, rank: int):
        self._nccl, self._rank = nccl, rank

    def destroy(self) -> None:
        pass

    def __getattr__(self, name: str) -> Callable:
        def call(*args: Any) -> None:
            if self._nccl.open:
                self._nccl.open[self._rank].append((name, args))
            else:
                self._nccl.gpus.streams[self._rank].queue(Group([(name, args)]))

        return call


def nccl_calls(gpus: FakeGpus, of_ranks: list[list[tuple[str, tuple]]]) -> None:
    """Make the calls of all ranks."""

    def at(address: int, count: int) -> np.ndarray:
        begin = address - GLOBAL_BASE
        gpus.memory.state[begin : begin + 4 * count] = WRITTEN
        return gpus.memory.bytes[begin : begin + 4 * count].view(np.float32)

    sent = {}
    for rank, calls in enumerate(of_ranks):
        for name, args in calls:
            if name == "send":
                sent[rank, args[3]] = at(args[0], args[1]).copy()
    for rank, calls in enumerate(of_ranks):
        for name, args in calls:
            if name == "recv":
                at(args[0], args[1])[:] = sent[args[3], rank]
    firsts = [calls[0] for calls in of_ranks]
    name, n, ranks = firsts[0][0], firsts[0][1][2], len(firsts)
    if name in ("allReduce", "reduceScatter"):
        length = n if name == "allReduce" else n * ranks
        total = sum(at(args[0], length).copy() for _, args in firsts[: ranks - gpus.nccl.wrong])
        for rank, (_, args) in enumerate(firsts):
            at(args[1], n)[:] = total if name == "allReduce" else total[rank * n : (rank + 1) * n]
    elif name in ("allGather", "broadcast"):
        given = [at(args[0], n).copy() for _, args in firsts]
        whole = np.concatenate(given) if name == "allGather" else given[0]
        for _, args in firsts:
            at(args[1], whole.size)[:] = whole
