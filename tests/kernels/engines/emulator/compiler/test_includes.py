"""The cache of compilations: an entry is used only if no file that the compiler may read has changed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cuda_headers
from kernels.engines.emulator import user_kernel
from kernels.engines.emulator.compiler import compile, standard
from kernels.engines.emulator.compiler.includes import fingerprint
from tests.helpers.emulated import emulate, needs_nvrtc
from tests.helpers.offenders import every

KERNEL = 'extern "C" __global__ void k(int* x) { x[0] = VALUE; }\n'


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Returns a function that writes files into a folder and returns it. The cache is empty at first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))

    def write(**contents: str) -> Path:
        for name, content in contents.items():
            path = tmp_path / "src" / name.replace("__", "/").replace("_h", ".h").replace("_cu", ".cu")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return tmp_path / "src"

    return write


def value(folder: Path, *folders: str, **settings) -> int:
    """Returns the value that the kernel of k.cu stores."""
    given = {"folders": [str(folder / f) for f in folders], **settings}
    return int(
        user_kernel.emulate(folder / "k.cu", "k", (1, 1, 1), (1, 1, 1), ["i32:1:empty"], **given).arrays["arg0"][0]
    )


@needs_nvrtc
@pytest.mark.parametrize(
    "include", ['"mine.h"', "<mine.h>", "/* beside */ <mine.h>", "\\\n<mine.h>", '"sub/next.h"', '"/ABSOLUTE/mine.h"']
)
def test_edited_header_recompiles_and_unchanged_source_does_not(include, files, monkeypatch):
    folder = files(mine_h="#define VALUE 1\n", sub__next_h='#  include "../mine.h"\n', other_h="")
    files(k_cu=f"#include {include.replace('/ABSOLUTE', folder.as_posix())}\n{KERNEL}")
    assert value(folder) == 1
    files(mine_h="#define VALUE 2\n")
    assert value(folder) == 2
    files(mine_h="#define VALUE 1\n", other_h="// nobody includes this\n")

    def fail_on_compile(*args):
        raise AssertionError("this was compiled before")

    monkeypatch.setattr(compile, "_compile", fail_on_compile)
    assert value(folder) == 1


@needs_nvrtc
def test_header_added_to_or_removed_from_an_earlier_folder_recompiles(files):
    folder = files(k_cu=f"#include <mine.h>\n{KERNEL}", late__mine_h="#define VALUE 1\n", early__x_h="")
    assert value(folder, "early", "late") == 1
    files(early__mine_h="#define VALUE 2\n")
    assert value(folder, "early", "late") == 2
    assert value(folder, "late", "early") == 1
    (folder / "early" / "mine.h").unlink()
    assert value(folder, "early", "late") == 1


@needs_nvrtc
def test_header_named_by_a_macro_is_never_cached(files):
    folder = files(k_cu=f"#include MINE\n{KERNEL}", mine_h="#define VALUE 1\n")
    assert value(folder, defines=['MINE="mine.h"']) == 1
    files(mine_h="#define VALUE 2\n")
    assert value(folder, defines=['MINE="mine.h"']) == 2


@needs_nvrtc
def test_has_include_recompiles_when_the_header_appears(files):
    folder = files(k_cu=f'#if __has_include("mine.h")\n#define VALUE 1\n#else\n#define VALUE 2\n#endif\n{KERNEL}')
    assert value(folder) == 2
    files(mine_h="")
    assert value(folder) == 1


@needs_nvrtc
def test_header_in_the_working_directory_is_not_used(files, tmp_path, monkeypatch):
    folder = files(k_cu=f'#include "mine.h"\n{KERNEL}', mine_h="#define VALUE 1\n", cwd__mine_h="#define VALUE 2\n")
    monkeypatch.chdir(folder / "cwd")
    assert value(folder) == 1


@needs_nvrtc
def test_edit_during_compilation_is_not_cached_for_the_old_files(files, monkeypatch):
    folder = files(k_cu=f'#include "mine.h"\n{KERNEL}', mine_h="#define VALUE 1\n")
    original_compile = compile._compile

    def slow(*args):
        files(mine_h="#define VALUE 2\n")
        return original_compile(*args)

    monkeypatch.setattr(compile, "_compile", slow)
    assert value(folder) == 2
    monkeypatch.setattr(compile, "_compile", original_compile)
    files(mine_h="#define VALUE 1\n")
    assert value(folder) == 1


@needs_nvrtc
def test_damaged_cache_is_ignored(files, tmp_path):
    folder = files(k_cu=KERNEL.replace("VALUE", "3"))
    assert value(folder) == 3
    (cached,) = (tmp_path / "cache").rglob("*.json")
    for content in ("", "{}", "[1]", '["", {"k": 1}, 3]', "\xff"):
        cached.write_text(content, encoding="latin-1")
        assert value(folder) == 3


@settings(max_examples=50)
@given(edges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=10), edited=st.integers(0, 5))
def test_fingerprint_changes_only_with_reachable_files(edges, edited, tmp_path_factory):
    """Six headers include each other in any way, also in circles. The source includes the first."""
    folder = tmp_path_factory.mktemp("headers")
    for n in range(6):
        lines = [f'#include "../{folder.name}/h{b}.h"\n' for a, b in edges if a == n]
        (folder / f"h{n}.h").write_text("".join(lines))
    reached, todo = set(), [0]
    while todo:
        n = todo.pop()
        if n not in reached:
            reached.add(n)
            todo += [b for a, b in edges if a == n]
    before = fingerprint("#include <h0.h>\n", folder, [], [])
    with (folder / f"h{edited}.h").open("a") as file:
        file.write("// edited\n")
    assert (fingerprint("#include <h0.h>\n", folder, [], []) != before) == (edited in reached)


def test_fingerprint_of_cuda_headers_is_the_folder_date(tmp_path):
    root = tmp_path / "include"
    (root / "crt").mkdir(parents=True)
    (root / "mma.h").write_text('#include "crt/mma.h"\n')
    (root / "crt" / "mma.h").write_text("#include MACRO\n")
    text = "#include <mma.h>\n"

    def now() -> str | None:
        return fingerprint(text, tmp_path, [root], [root])

    before = now()
    assert before and before == now() != fingerprint("", tmp_path, [root], [root])
    os.utime(root / "crt", ns=(1, 1))  # as after an upgrade
    assert now() != before


# -- the standard library --------------------------------------------------------------------------
USED = "algorithm array cfloat climits cmath cstddef cstdint limits tuple type_traits cassert stdio.h string.h".split()


@needs_nvrtc
def test_standard_library_and_cccl_headers_compile():
    """One kernel uses a name of each header."""
    names = "\n".join(f"#include <{name}>" for name in USED)
    source = f"""{names}
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <cuda/atomic>
extern "C" __global__ void k(int* x) {{
  static_assert(std::is_same<std::uint32_t, uint32_t>::value && sizeof(size_t) == sizeof(std::size_t), "");
  static_assert(std::numeric_limits<int>::max() == INT_MAX && FLT_MAX > 1, "");
  std::array<int, 2> two = {{3, 4}};
  cuda::atomic_ref<int, cuda::thread_scope_block> first(x[0]);
  if (cooperative_groups::this_thread_block().thread_rank() == 0) first.store(100, cuda::memory_order_relaxed);
  bool numbers = isinf(INFINITY) && isnan(NAN) && std::isinf(HUGE_VALF);
  x[0] += numbers + std::max(two[0], two[1]) + (int)std::sqrt(9.0f) + (int)M_PI + std::get<1>(std::make_tuple(1, 5));
}}
"""
    assert emulate(source, {}, {"x": ((1,), "i4")}, entry="k", block=1)["x"] == [100 + 1 + 4 + 3 + 3 + 5]


@needs_nvrtc
@pytest.mark.parametrize("name", ["cfloat", "float.h", "climits", "limits.h", "stdbool.h", "inttypes.h"])
def test_macro_and_type_headers_compile_alone(name):
    kernel = 'extern "C" __global__ void k(int* x) { x[0] = sizeof(x); }'
    assert ".entry k" in compile.compile_ptx(f"#include <{name}>\n{kernel}", "own.cu")


@needs_nvrtc
def test_every_standard_header_includes_an_existing_file():
    for name, text in standard.HEADERS.items():
        for included in re.findall(r"#include <(.*)>", text):
            assert any((folder / included).is_file() for folder in cuda_headers.folders()), (
                f"{name} includes {included}"
            )


def test_cub_header_is_replaced_by_its_kernel_parts(tmp_path):
    """CUB's cub.cuh is an #error for NVRTC, so it is replaced. A user's string.h is not."""
    for name in ("cub/cub.cuh", "string.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    given = standard.provided([tmp_path])
    assert "string.h" not in given and "#include <cub/block/block_radix_sort.cuh>" in given["cub/cub.cuh"]


@needs_nvrtc
def test_user_header_precedes_the_standard_librarys(files):
    folder = files(k_cu=f"#include <string.h>\n{KERNEL}", mine__string_h="#define VALUE 4\n")
    assert value(folder, "mine") == 4


@needs_nvrtc
@every(
    ("text", "message"),
    [
        ("#include <iostream>\n", "iostream was not found. It is a C++ header of the host, which NVRTC does not have"),
        (
            '#include "helper_cuda.h"\n',
            "helper_cuda.h was not found in a folder given by -I. If it is a header of the host",
        ),
        ("#include <torch/extension.h>\n", "between #ifndef __CUDACC_RTC__ and #endif"),
        ("#include <curand_kernel.h>\n", "pip install nvidia-curand"),
        ("__host__ int half(int n) { return n / 2; }\n", "Only device code is compiled: put the host's functions"),
        (
            "int main() { return cudaDeviceSynchronize(); }\n",
            "Only device code is compiled: put the host's functions between #ifndef",
        ),
    ],
)
def test_host_code_error_includes_advice(text, message):
    with pytest.raises(compile.CompileError) as e:
        compile.compile_ptx(text, "own.cu")
    assert message in str(e.value).partition("\n")[0]


def test_cccl_folder_follows_its_header_folder(monkeypatch, tmp_path):
    (tmp_path / "include" / "cccl").mkdir(parents=True)
    (tmp_path / "include" / "mma.h").touch()
    monkeypatch.setattr(cuda_headers, "_wheels", lambda: iter((tmp_path / "include",)))
    monkeypatch.setattr(cuda_headers, "_toolkits", lambda: iter(()))
    cuda_headers.folders.cache_clear()
    try:
        assert cuda_headers.folders() == (tmp_path / "include", tmp_path / "include" / "cccl")
    finally:
        cuda_headers.folders.cache_clear()
