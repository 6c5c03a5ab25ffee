"""A judge's folder: runs a solution on the tests of a LeetGPU challenge, without a GPU, and says what is wrong.

The folder is the reader's own checkout. Its challenge.py has a class Challenge with the reference (reference_impl), the signature of
solve (get_solve_signature), tests (generate_example_test, generate_functional_test) and tolerances. It computes with PyTorch on
"cuda"; here the same code computes on the processor. The test of performance is left out: the emulator takes no times.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import device_memory
from kernels.engines.emulator.program.run import SECONDS, Ended, HostProgram
from kernels.engines.emulator.ptx.parse import parse
from kernels.model.program import RuleError

FILE = "challenge.py"
_METHODS = ("reference_impl", "get_solve_signature", "generate_example_test", "generate_functional_test")
MAX_SHOWN = 10  # elements that differ
_SCALARS = {
    ctypes.c_int: np.int32, ctypes.c_uint: np.uint32, ctypes.c_long: np.int64, ctypes.c_ulong: np.uint64,
    ctypes.c_longlong: np.int64, ctypes.c_ulonglong: np.uint64, ctypes.c_size_t: np.uint64, ctypes.c_float: np.float32,
    ctypes.c_double: np.float64, ctypes.c_short: np.int16, ctypes.c_char: np.int8, ctypes.c_byte: np.int8,
    ctypes.c_ubyte: np.uint8, ctypes.c_bool: np.bool_,
}  # fmt: skip


@dataclass(frozen=True)
class Tested:
    """The outcome of one test: what is wrong with an output or with the run, "" if it is right; the run, None after a fault."""

    name: str
    wrong: str
    ended: Ended | None

    @property
    def right(self) -> bool:
        return not self.wrong


@dataclass(frozen=True)
class Judged:
    challenge: str
    tests: tuple[Tested, ...]

    @property
    def right(self) -> bool:
        return all(test.right for test in self.tests)

    def to_json(self) -> dict:
        return {
            "challenge": self.challenge,
            "right": self.right,
            "tests": [
                {"name": t.name, "right": t.right, "wrong": t.wrong, "run": t.ended and t.ended.to_json()}
                for t in self.tests
            ],
        }

    def text(self) -> str:
        out = []
        for test in self.tests:
            out.append(f"{test.name}: {'right' if test.right else f'wrong: {test.wrong}'}")
            found = (
                []
                if test.ended is None
                else [m for each in test.ended.launches for m in (*each.races, *each.warnings, *each.notes)]
            )
            out += [f"  {message}" for message in dict.fromkeys((*found, *(test.ended.notes if test.ended else ())))]
        right = sum(test.right for test in self.tests)
        return "\n".join([*out, f"{self.challenge}: {right} of {len(self.tests)} tests are right"])


# -- the challenge ----------------------------------------------------------------------------------------
class ChallengeBase:
    """Takes the place of the judge's own base class, in both of its forms: names and tolerances of the class, or arguments."""

    name, atol, rtol = "challenge", 1e-5, 1e-5

    def __init__(self, *args: Any, device: str = "cuda", **fields: Any):
        names = ("name", "atol", "rtol", "num_gpus", "access_tier")
        for name, value in (*zip(names, args, strict=False), *fields.items()):
            setattr(self, name, value)
        self.device = device


class _Spec:
    """A tensor of a test of performance, which is left out."""

    def __init__(self, *args: Any, **fields: Any):
        self.args, self.fields = args, fields


def _base_module() -> ModuleType:
    module = ModuleType("core.challenge_base")
    vars(module)["ChallengeBase"] = ChallengeBase
    for name in ("RandTensor", "RandnTensor", "RandIntTensor", "FullTensor", "OutTensor"):
        vars(module)[name] = _Spec
    return module


@contextmanager
def _imports() -> Iterator[None]:
    """Makes `core.challenge_base` importable, as in the judge's checkout."""
    base, names = _base_module(), ("core", "core.challenge_base")
    before = {name: sys.modules.get(name) for name in names}
    package = ModuleType("core")
    vars(package).update(__path__=[], challenge_base=base)
    sys.modules.update(zip(names, (package, base), strict=True))
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def _torch() -> ModuleType:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise RuleError("a challenge computes with PyTorch, which is not installed here: pip install torch") from None


@contextmanager
def _on_the_processor(torch: ModuleType) -> Iterator[None]:
    """Makes PyTorch compute on the processor where code says "cuda", and say "cuda" where code asks for a tensor's device."""

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if function == torch.Tensor.device.__get__:  # each access makes a new one
                return torch.device("cuda")
            if "cuda" in str(kwargs.get("device", "")):
                kwargs["device"] = "cpu"
            if function == torch.Tensor.cuda or (function == torch.Tensor.to and "cuda" in str(args[1:2])):
                return args[0]
            return function(*args, **kwargs)

    with Mode():
        yield


def load(folder: Path) -> Any:
    """Returns the challenge of a folder. RuleError if it has none, or if it cannot be loaded."""
    file = Path(folder) / FILE
    if not file.is_file():
        raise RuleError(f"a judge's folder has a file {FILE}; {folder} has none")
    spec = importlib.util.spec_from_file_location("judged_challenge", file)
    if spec is None or spec.loader is None:
        raise RuleError(f"{file} is no file of Python")
    module = importlib.util.module_from_spec(spec)
    _torch()
    with _imports():
        try:
            spec.loader.exec_module(module)
            challenge = module.Challenge()
        except Exception as error:  # whatever code of the reader's raises
            raise RuleError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from None
    missing = [name for name in _METHODS if not hasattr(challenge, name)]
    if missing:
        raise RuleError(f"the class Challenge of {file} has no {', '.join(missing)}")
    return challenge


# -- the judgement ------------------------------------------------------------------------------------------
def judge(
    folder: Path,
    solution: Path,
    *,
    arch: str = "sm_80",
    standard: str = "c++17",
    seconds: float = SECONDS,
    report: Callable[[Tested], object] = lambda test: None,
) -> Judged:
    """Runs the function solve() of a file on each test of a folder's challenge. `report` gets each outcome as it is there.

    RuleError: CompileError with the compiler's message, and what is wrong with the folder. OSError.
    """
    challenge, torch = load(folder), _torch()
    program = HostProgram.read(solution, (), (), arch, standard, seconds, lambda text: None)
    compiled = program.solution()
    tested = []
    with _on_the_processor(torch):
        signature = dict(challenge.get_solve_signature())
        cases = {"the example": challenge.generate_example_test()}
        functional = challenge.generate_functional_test()
        cases |= {f"test {n}": case for n, case in enumerate(functional, 1)}
        for name, case in cases.items():
            expected = {key: value.clone() if _is_tensor(value) else value for key, value in case.items()}
            challenge.reference_impl(**expected)
            test = _tested(name, program, compiled, signature, case, expected, challenge)
            report(test)
            tested.append(test)
    return Judged(challenge.name, tuple(tested))


def _is_tensor(value: object) -> bool:
    return hasattr(value, "clone")


def _array(tensor: Any) -> np.ndarray:
    """Returns a tensor's numbers. NumPy reads no bfloat16 from PyTorch."""
    tensor = tensor.detach().cpu().contiguous()
    if str(tensor.dtype) == "torch.bfloat16":
        import ml_dtypes

        return tensor.view(_torch().int16).numpy().view(ml_dtypes.bfloat16)
    return np.array(tensor.numpy())


def _tested(
    name: str,
    program: HostProgram,
    compiled: tuple[str, str, Mapping[str, str]],
    signature: Mapping[str, Any],
    case: Mapping[str, Any],
    expected: Mapping[str, Any],
    challenge: ChallengeBase,
) -> Tested:
    ptx, entry, _ = compiled
    arrays = {key: _array(case[key]) for key in signature if _is_tensor(case[key])}
    outputs = [key for key in arrays if "out" in _direction(signature[key])]
    empty = [key for key in outputs if "in" not in _direction(signature[key])]
    args = [key if key in arrays else _scalar(key, signature[key], case[key]) for key in signature]
    _check_parameters(ptx, entry, signature, args)
    memory = device_memory(arrays, [key for key in arrays if key not in empty])
    memory.owners |= dict.fromkeys(arrays, "device")
    try:
        status, runtime, printed = program.execute(ptx, entry, "solve", args, memory)
    except EmulatorError as error:
        return Tested(name, str(error), None)
    ended = Ended(status, printed, tuple(runtime.launches), tuple(runtime.notes))
    for key in outputs:
        if wrong := _wrong(key, memory.array(key), _array(expected[key]), runtime.unwritten(key), challenge):
            return Tested(name, wrong, ended)
    return Tested(name, "", ended)


def _direction(of: Any) -> str:
    """Returns "in", "out" or "inout" of a parameter. A signature without directions allows all pointers to be written."""
    return str(of[1]) if isinstance(of, tuple) else "inout"


def _scalar(name: str, of: Any, value: Any) -> np.generic:
    type_ = of[0] if isinstance(of, tuple) else of
    if type_ not in _SCALARS:
        raise RuleError(
            f"the parameter {name} of solve is {getattr(type_, '__name__', type_)}, which is no number of C"
        )
    return _SCALARS[type_](value)


def _check_parameters(ptx: str, entry: str, signature: Mapping[str, Any], args: Sequence[Any]) -> None:
    sizes = [p.size for p in parse(ptx, entry).params]
    wanted = [8 if isinstance(arg, str) else arg.itemsize for arg in args]
    if sizes != wanted:
        raise RuleError(
            f"solve takes {len(sizes)} parameters of {sizes} bytes; the challenge gives it {', '.join(signature)}, of {wanted} bytes"
        )


def _wrong(name: str, got: np.ndarray, want: np.ndarray, unwritten: np.ndarray, challenge: ChallengeBase) -> str:
    """Returns how an output differs, "" if it does not. Tolerances are the judge's: |got - want| <= atol + rtol |want|."""
    a, b = (array.reshape(-1).astype(np.float64) for array in (got, want))
    differ = unwritten | ~np.isclose(a, b, rtol=challenge.rtol, atol=challenge.atol, equal_nan=True)
    if not differ.any():
        return ""
    lines = [f"{np.count_nonzero(differ):,} of {differ.size:,} elements of {name} differ"]
    for n in np.flatnonzero(differ)[:MAX_SHOWN].tolist():
        index = ", ".join(str(int(i)) for i in np.unravel_index(n, want.shape))
        is_ = "was never written" if unwritten[n] else f"is {a[n]:.7g}"
        lines.append(f"  {name}[{index}] {is_}, expected {b[n]:.7g}")
    return "\n".join(lines)
