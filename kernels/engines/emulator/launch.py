"""Run one CUDA kernel in the emulator: from PTX, grid, block and arguments to arrays, counters and a trace."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kernels.engines.emulator import tensor_maps
from kernels.engines.emulator.async_copies import AsyncCopies
from kernels.engines.emulator.batches import at_once
from kernels.engines.emulator.bulk_copies import BulkCopies
from kernels.engines.emulator.calls import Frames, addresses
from kernels.engines.emulator.clusters import Clusters
from kernels.engines.emulator.counters import Counters, Tally
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.first_nan import FirstNan
from kernels.engines.emulator.float_bits import FloatBits
from kernels.engines.emulator.iterations import SECONDS
from kernels.engines.emulator.ledger import Unread
from kernels.engines.emulator.links import Links
from kernels.engines.emulator.memory import GLOBAL_BASE, Global
from kernels.engines.emulator.native.engine import plan_for
from kernels.engines.emulator.order import Order
from kernels.engines.emulator.overflow import Overflow
from kernels.engines.emulator.printer import Printed
from kernels.engines.emulator.products import Products
from kernels.engines.emulator.proxies import Proxies
from kernels.engines.emulator.ptx.kernel import Kernel
from kernels.engines.emulator.ptx.parse import parse
from kernels.engines.emulator.races import Races
from kernels.engines.emulator.register_pool import RegisterPool
from kernels.engines.emulator.scheduler import InTurns, OneByOne, Scheduler
from kernels.engines.emulator.state import Machine
from kernels.engines.emulator.threads import Dim, permutation
from kernels.engines.emulator.trace import BlockTrace, Trace
from kernels.engines.emulator.watch.watch import Watch
from kernels.model.program import Arg
from kernels.model.tensor_map import TensorMap

if TYPE_CHECKING:
    from kernels.engines.emulator.program.runtime import Runtime
    from kernels.engines.emulator.watch.trace import Watched, WatchTrace

TURNS = "turns"  # one warpgroup after the other (scheduler.InTurns)
BLOCKS = "blocks"  # one block after the other, until it waits for another (scheduler.OneByOne)


@dataclass(frozen=True)
class Options:
    """What to record besides the result.

    `order`: "forward", "reversed", a seed for a shuffle of the warps, the blocks and the GPUs, BLOCKS or TURNS. `trace_block`: linear index of
    the block to trace, None for none; without `trace_values`, the trace has no accesses. `seconds`: processor time, after
    which a launch that is still in a loop ends with an error. `until`, a buffer and a number of bytes: a traced run ends
    once bulk copies have brought so many bytes of the buffer to the traced block or its cluster. `zeros`: all inputs are
    zero, so wgmma's sums are zero. Its operands are checked, and nothing is multiplied. `numbers`: look for the first NaN, for
    whole numbers that wrap and for floats compared by their bits. Without `machine_code` NumPy executes everything, one instruction after the other. `watch`: the PTX is
    a build for watching, and the trace has the values of variables; with True nothing is traced.
    """

    count: bool = True
    trace_block: int | None = None
    trace_values: bool = True
    races: bool = False
    numbers: bool = False
    order: str | int = "forward"
    seconds: float = SECONDS
    until: tuple[str, int] | None = None
    zeros: bool = False
    machine_code: bool = True
    watch: Watch | bool = False

    def tracing(self, block: int) -> Options:
        return replace(self, trace_block=block)


@dataclass(frozen=True)
class Run:
    """The result of a launch: counters and trace if the options include them, and the lines that threads printed.

    `races` describes the data races. `warnings` describes barriers that some threads returned before, and numbers that wrap or
    are compared by their bits. `unprinted` is the number of calls of printf whose text was dropped. `machine`: its state after the launch, if races were looked for. `watched`: what
    the blocks of a Watch have done.
    """

    counters: Counters | None
    trace: BlockTrace | None
    races: tuple[str, ...]
    printed: tuple[Printed, ...] = ()
    unprinted: int = 0
    warnings: tuple[str, ...] = ()
    machine: Machine | None = None
    watched: Watched | None = None

    @property
    def traced(self) -> BlockTrace:
        """Returns the trace. ValueError if the options have no block to trace."""
        if self.trace is None:
            raise ValueError("no block was traced")
        return self.trace

    @property
    def ended(self) -> Machine:
        """Returns the state after the launch. ValueError if no races were looked for."""
        if self.machine is None:
            raise ValueError("no races were looked for")
        return self.machine

    @property
    def counted(self) -> Counters:
        """Returns the counters. ValueError if the options do without."""
        if self.counters is None:
            raise ValueError("nothing was counted")
        return self.counters


def launch(
    ptx: str,
    entry: str,
    grid: Dim,
    block: Dim,
    args: Sequence[Arg],
    memory: Global,
    shared: int = 0,
    options: Options = Options(),
    name: str = "",
    host: Runtime | None = None,
) -> Run:
    """Run `entry`, or the host code of a program with its runtime. An argument is the name of a buffer of `memory`, a map of one, or a NumPy scalar of the parameter's
    type (a structured one for a struct). EmulatorError names the fault and its line."""
    return launch_ranks(ptx, entry, grid, block, (args,), memory, None, shared, options, name, host)


def launch_ranks(
    ptx: str,
    entry: str,
    grid: Dim,
    block: Dim,
    args: Sequence[Sequence[Arg]],
    memory: Global,
    links: Links | None = None,
    shared: int = 0,
    options: Options = Options(),
    name: str = "",
    host: Runtime | None = None,
) -> Run:
    """Run `entry` on several GPUs at once, each with arguments of its own: `args` has those of each rank. Their buffers
    are parts of one memory; `links` counts the bytes that cross from one GPU's buffers to another's threads or back.
    EmulatorError names the fault and its line."""
    with _no_collection():
        kernel = _watched_kernel(ptx, entry) if options.watch else parse(ptx, entry)
    _check_clusters(kernel, grid)
    params = [_param_bytes(kernel, entry, of_rank, memory) for of_rank in args]
    symbols = _allocate_module_variables(kernel, memory)
    tally = Tally(kernel.code) if options.count else None
    alone = (
        len(params) == 1
        and not isinstance(options.watch, Watch)
        and options.trace_block is None
        and options.order not in (TURNS, BLOCKS)
        and host is None
    )
    machine = Machine(
        kernel,
        grid,
        block,
        params,
        memory,
        shared,
        tally=tally,
        order="forward" if options.order in (TURNS, BLOCKS) else options.order,
        symbols=symbols,
        name=name or entry,
        at_once=at_once(kernel, grid, block, shared) if alone else None,
    )
    machine.links = links and links.of(machine)
    machine.zeros, machine.host = options.zeros, host
    machine.frames = Frames(machine) if any(i.parts[0] == "call" for i in kernel.code) else None
    _add_asynchronous_units(machine)
    if options.races:
        _add_race_detectors(machine)
    if options.numbers:
        machine.first_nan, machine.overflow, machine.float_bits = (
            FirstNan(machine),
            Overflow(machine),
            FloatBits(machine),
        )
    watched = _watch_trace(machine, options.watch, ptx) if isinstance(options.watch, Watch) else None
    plain = options.trace_block is not None and watched is None
    trace = Trace(machine, options.trace_block or 0, options.trace_values) if plain else None
    machine.trace = watched or trace
    with _no_collection():
        scheduler = _scheduler(machine, options, watched)
    until = options.until
    try:
        scheduler.run((lambda: trace.events.brought(*until)) if trace and until else None)
    except EmulatorError as error:
        error.watched = watched.watched() if watched else None
        raise
    return Run(
        tally.counters() if tally else None,
        trace.result() if trace else None,
        tuple(message for races in machine.races.values() for message in races.found.values()),
        machine.printer.lines(),
        machine.printer.dropped,
        (*scheduler.barriers.warnings.values(), *_about_numbers(machine)),
        machine if options.races else None,
        watched.watched() if watched else None,
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Makes the garbage collector wait. A parsed and decoded kernel is 10^5 objects that live as long as the launch: to visit them
    again and again takes as long as to make them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _add_race_detectors(machine: Machine) -> None:
    machine.order = Order(machine)
    machine.races["global"] = Races(machine, "global", machine.memory, machine.order)
    if machine.shared.size:
        machine.races["shared"] = Races(machine, "shared", machine.shared, machine.order)
        machine.unread = Unread(machine)


def _about_numbers(machine: Machine) -> tuple[str, ...]:
    checks = (machine.overflow, machine.float_bits)
    return tuple(message for check in checks if check is not None for message in check.found.values())


def _add_asynchronous_units(machine: Machine) -> None:
    """Add what only kernels with asynchronous copies, wgmma, clusters or setmaxnreg need."""
    opcodes = {i.opcode for i in machine.kernel.code}

    def any_with(*texts: str) -> bool:
        return any(text in opcode for opcode in opcodes for text in texts)

    if any(opcode.startswith("cp.async.") and not opcode.startswith("cp.async.bulk") for opcode in opcodes):
        machine.async_copies = AsyncCopies(machine)
    copies, products = any_with("cp.async.bulk"), any_with("wgmma.")
    if copies or products:
        machine.proxies = Proxies(machine)
    if copies:
        machine.copies = BulkCopies(machine)
    if products:
        machine.products = Products(machine)
    if machine.threads.cluster_size > 1 or any_with("barrier.cluster", "mapa.", "shared::cluster"):
        machine.clusters = Clusters(machine)
    if any_with("setmaxnreg"):
        machine.register_pool = RegisterPool(machine)


def _param_bytes(kernel: Kernel, entry: str, args: Sequence[Arg], memory: Global) -> dict[str, bytes]:
    """Returns the bytes of each parameter. EmulatorError if the arguments differ from the parameters in number or size."""
    if len(args) != len(kernel.params):
        raise EmulatorError(f"{entry} takes {len(kernel.params)} arguments, got {len(args)}")
    params = {}
    for n, (p, value) in enumerate(zip(kernel.params, args, strict=True)):
        if isinstance(value, TensorMap):
            data = tensor_maps.encoded(value, memory.address(value.buffer))
        else:
            argument = np.uint64(memory.address(value)) if isinstance(value, str) else value
            data = np.asarray(argument).tobytes()
        if len(data) != p.size:
            raise EmulatorError(f"{entry}: argument {n} is {p.size} bytes wide, got {len(data)}")
        params[p.name] = data
    return params


def _check_clusters(kernel: Kernel, grid: Dim) -> None:
    """Raises EmulatorError if a grid does not consist of whole clusters."""
    if any(blocks % of for blocks, of in zip(grid, kernel.cluster, strict=True)):
        raise EmulatorError(f"{kernel.name}: a grid of {grid} blocks is not made of clusters of {kernel.cluster}")


def _allocate_module_variables(kernel: Kernel, memory: Global) -> dict[str, int]:
    """Allocate the module's variables that the kernel uses. Return their addresses and those of the module's functions,
    by name. A name in a variable's initial content that the module does not define stays zero."""
    existing = {p.name for p in memory.regions}
    variables = [v for v in kernel.variables if v.space in ("global", "const")]
    used = kernel.symbols if variables else set()
    variables = [v for v in variables if v.name in used]
    symbols = addresses(kernel)
    symbols |= {v.name: GLOBAL_BASE + memory.add(v.name, v.size, v.data) for v in variables}
    for v in variables:
        if v.addresses and v.name not in existing:
            data = bytearray(v.data.ljust(v.size, b"\0"))
            for a in v.addresses:
                bits = symbols[a.symbol] + a.offset >> a.shift if a.symbol in symbols else 0
                data[a.at : a.at + a.width] = (bits & (1 << 8 * a.width) - 1).to_bytes(a.width, "little")
            memory.write(v.name, np.frombuffer(data, np.uint8))
    return symbols


def _watched_kernel(ptx: str, entry: str) -> Kernel:
    from kernels.engines.emulator.watch import build  # needs Pygments

    return build.kernel(ptx, entry)


def _watch_trace(machine: Machine, watch: Watch, ptx: str) -> WatchTrace:
    from kernels.engines.emulator.watch.trace import WatchTrace  # needs pyelftools

    return WatchTrace(machine, watch, ptx)


def _scheduler(machine: Machine, options: Options, watched: WatchTrace | None) -> Scheduler:
    """Returns the scheduler of a launch. Several GPUs run side by side in the order "forward", else one after the other."""
    threads = machine.threads
    if (
        watched is not None
        and options.machine_code
        and machine.frames is None
        and machine.host is None
        and threads.ranks == 1
    ):
        from kernels.engines.emulator.watch.straight import Straight

        straight = Straight(machine, watched)  # before instructions are decoded
    else:
        straight = None
    if options.order == TURNS:
        return InTurns(machine, options.seconds, straight)
    if threads.ranks > 1 and options.order not in ("forward", BLOCKS):
        return OneByOne(machine, options.seconds, threads.rank_of, permutation(options.order, threads.ranks))
    if options.order == BLOCKS:
        return OneByOne(machine, options.seconds, threads.index_of, np.arange(threads.in_grid), straight)
    return Scheduler(machine, options.seconds, plan_for(machine) if options.machine_code else None, straight)


def device_memory(arrays: Mapping[str, np.ndarray], written: Sequence[str]) -> Global:
    """Returns a device memory with copies of `arrays`. Reading an array that is not in `written` is an error until a
    kernel has written it."""
    return Global(arrays, written)
