"""The GPU that is found, with a fake of the driver's library; no GPU is needed or used."""

from __future__ import annotations

import pytest

from kernels.engines import cuda
from kernels.libraries import wheels
from kernels.machine import driver as driver_module
from kernels.machine import memory_levels
from kernels.machine.driver import GpuInfo
from kernels.machine.status import Status
from kernels.model.program import RefusedError
from tests.children.driver import H200, Driver


def why(make, driver, on_bus: bool = True) -> str:
    make(driver, on_bus)
    status = cuda.status()
    assert not status.ready
    return status.why


def test_gpu_is_found_with_its_properties(machine):
    machine(Driver())
    assert driver_module.find() == GpuInfo("NVIDIA H200", 1, "0000:65:00.0", (9, 0), 232_448)
    assert cuda.status() == Status(True, "NVIDIA H200")


def test_gpu_in_use_is_named_if_there_are_several(machine):
    machine(Driver(count=2))
    assert cuda.status() == Status(True, "NVIDIA H200", which="GPU 0 of 2")


def test_memory_levels_are_those_of_the_same_gpu(machine):
    machine(Driver(name=b"NVIDIA L4"))
    levels = memory_levels.gpu(cuda.status())
    assert levels.device == cuda.status().text == "NVIDIA L4"
    assert levels.levels[0].each == "each of 132 SMs" and levels.levels[-1].bytes == 141 << 30


# -- no driver, or none that starts ---------------------------------------------------------------------
def test_no_gpu_and_no_driver_is_not_a_fault(machine):
    machine(None, on_bus=False)
    assert cuda.status() == Status(False, "no NVIDIA GPU in this machine")


def test_message_without_a_driver_says_what_to_install(machine):
    assert why(machine, None) == (
        "this machine has an NVIDIA GPU, but its driver is not installed. "
        "Install driver 580 or newer; start a container with --gpus all"
    )


def test_a_library_that_is_not_the_drivers(machine):
    assert why(machine, object()).startswith("the driver library that was found is not NVIDIA's (")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (34, "the driver library that was found is the stub of a CUDA toolkit (CUDA_ERROR_STUB_LIBRARY). Take"),
        (46, "another program uses the GPU exclusively (CUDA_ERROR_DEVICE_UNAVAILABLE). Wait until it ends, or run"),
        (100, "the NVIDIA driver finds no GPU (CUDA_ERROR_NO_DEVICE). nvidia-smi -L lists the GPUs; a GPU in MIG"),
        (304, "the operating system refused a call of the driver (CUDA_ERROR_OPERATING_SYSTEM). Check that this user"),
        (802, "the GPUs are not ready (CUDA_ERROR_SYSTEM_NOT_READY). Start NVIDIA's service nvidia-fabricmanager"),
        (803, "the driver's library and its kernel module have different versions (CUDA_ERROR_SYSTEM_DRIVER_MISM"),
        (804, "CUDA's compatibility package does not support this GPU (CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE)"),
        (999, "the NVIDIA driver does not start (CUDA_ERROR_UNKNOWN). Restart the computer"),
        (805, "the NVIDIA driver does not start: cuInit gives error 805. Run nvidia-smi"),
    ],
)
def test_message_explains_why_the_driver_does_not_start(machine, code, message):
    assert why(machine, Driver(init=code)).startswith(message)


def test_errors_have_the_names_of_cuda_h():
    """Compared with cuda.h, if NVIDIA's wheel is installed."""
    from kernels.engines import cuda_headers

    folder = next((f for f in cuda_headers.folders() if (f / "cuda.h").is_file()), None)
    if folder is None:
        pytest.skip("CUDA's headers are not installed")
    text = (folder / "cuda.h").read_text(encoding="utf-8")
    squeezed = text.replace(" ", "")
    for code, (name, _, _) in driver_module.ERRORS.items():
        assert f"CUDA_ERROR_{name}={code}" in squeezed
    for number, name in ((20, "COMPUTE_MODE"), (75, "COMPUTE_CAPABILITY_MAJOR"), (76, "COMPUTE_CAPABILITY_MINOR")):
        assert f"CU_DEVICE_ATTRIBUTE_{name}={number}" in squeezed
    assert "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=97" in squeezed


@pytest.mark.parametrize("driver", [Driver(init=100), Driver(count=0)], ids=["cuInit", "count"])
@pytest.mark.parametrize("value", ["", "-1", "7"])
def test_message_for_a_gpu_hidden_by_the_environment(machine, monkeypatch, driver, value):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert why(machine, driver) == (
        f'CUDA_VISIBLE_DEVICES is "{value}", which names no GPU of this machine. Unset it, or name a GPU'
    )


def test_driver_without_a_gpu_is_not_a_fault(machine):
    machine(Driver(init=100), on_bus=False)
    assert cuda.status() == Status(False, "no NVIDIA GPU in this machine")


# -- too old ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("version", "version_text"), [(12040, "12.4"), (12090, "12.9"), (11080, "11.8")])
def test_message_for_an_old_driver_names_the_needed_version(machine, version, version_text):
    expected = f"the NVIDIA driver supports CUDA {version_text}. This app needs driver 580 or newer"
    assert why(machine, Driver(version=version)) == expected


@pytest.mark.parametrize("version", [13000, 13020, 14000])
def test_any_driver_of_cuda_13_or_later_runs_every_minor_version(machine, version):
    machine(Driver(version=version))
    assert cuda.status().ready


@pytest.mark.parametrize(("capability", "ready"), [((6, 1), False), ((7, 0), False), ((7, 5), True), ((12, 0), True)])
def test_a_gpu_that_cuda_13_does_not_compile_for(machine, capability, ready):
    attributes = H200 | dict(zip((75, 76), capability, strict=True))
    machine(Driver(name=b"NVIDIA GeForce GTX 1080", attributes=attributes))
    assert cuda.status().ready == ready
    if not ready:
        version_text = ".".join(map(str, capability))
        assert cuda.status().why == (
            f"NVIDIA GeForce GTX 1080 has compute capability {version_text}. CUDA 13 needs 7.5 or newer"
        )


def test_message_for_an_old_gpu_mentions_another(machine):
    driver = Driver(count=2, attributes=H200 | {75: 7, 76: 0})
    assert why(machine, driver).endswith("7.5 or newer; CUDA_VISIBLE_DEVICES chooses another GPU")


def test_a_gpu_whose_mode_prohibits_programs(machine):
    assert why(machine, Driver(attributes=H200 | {20: 2})) == (
        "the GPU's compute mode prohibits programs. Run: nvidia-smi -c DEFAULT"
    )


# -- packages and libraries that are needed -----------------------------------------------------------------
def without(monkeypatch, *missing):
    """Hide these packages, as if they were not installed."""
    import importlib.util

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name in missing else find_spec(name, *a))


def test_without_cupy(machine, monkeypatch):
    without(monkeypatch, "cupy")
    assert why(machine, Driver()) == "CuPy is not installed. pip install cupy-cuda13x installs it"


def test_without_nvrtc(machine, monkeypatch):
    pathfinder = pytest.importorskip("cuda.pathfinder")

    def not_found(name):
        raise pathfinder.DynamicLibNotFoundError(f'Failure finding "lib{name}.so.13"')

    without(monkeypatch, "nvidia")
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", not_found)
    wheels.load.cache_clear()
    assert why(machine, Driver()) == (
        "NVRTC, CUDA's compiler, was not found on this machine. pip install nvidia-cuda-nvrtc installs it"
    )
    assert wheels.missing("cublas") == ("cuBLAS was not found on this machine; pip install nvidia-cublas installs it")
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", lambda name: pytest.fail("loaded twice"))
    assert wheels.missing("cublas")


def test_message_for_a_library_that_does_not_load(monkeypatch):
    pathfinder = pytest.importorskip("cuda.pathfinder")

    def broken(name):
        raise OSError("libcublasLt.so.13: file too short\nmore")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", broken)
    with pytest.raises(
        RefusedError, match=r"^cuBLAS does not load on this machine: libcublasLt.so.13: file too short$"
    ):
        wheels.load.__wrapped__("cublas")


def test_a_library_of_a_wheel_is_found_without_loading_it(monkeypatch, tmp_path):
    from types import SimpleNamespace

    library = tmp_path / "cu13" / "lib" / "libcublas.so.13"
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.setattr(wheels.sys, "platform", "linux")
    monkeypatch.setattr(
        wheels.importlib.util, "find_spec", lambda name: SimpleNamespace(submodule_search_locations=[tmp_path])
    )
    monkeypatch.setattr(wheels, "load", lambda name: pytest.fail("loaded"))
    assert wheels._in_wheel("cublas") and not wheels._in_wheel("cufft")
    assert wheels.missing.__wrapped__("cublas") == ""


# -- a server calls status() often ---------------------------------------------------------------------
def test_driver_is_initialized_once(machine):
    calls = []

    class Counting(Driver):
        def cuInit(self, flags):
            calls.append(flags)
            return 0

    machine(Counting())
    assert [cuda.status().ready for _ in range(3)] == [True] * 3 and calls == [0]
