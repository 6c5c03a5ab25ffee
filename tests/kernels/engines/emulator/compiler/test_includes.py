"""The cache of compilations: it answers only if no file that the compiler may read has changed."""

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

KERNEL = 'extern "C" __global__ void k(int* x) { x[0] = VALUE; }\n'


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Writes files of a folder with an empty cache beside it; the folder."""
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
    """What the kernel of k.cu stores."""
    given = {"folders": [str(folder / f) for f in folders], **settings}
    return int(
        user_kernel.emulate(folder / "k.cu", "k", (1, 1, 1), (1, 1, 1), ["i32:1:empty"], **given).arrays[
            "arg0"
        ][0]
    )


@needs_nvrtc
@pytest.mark.parametrize(
    "include",
    ['"mine.h"', "<mine.h>", "/* beside */ <mine.h>", "\\\n<mine.h>", '"sub/next.h"', '"/ABSOLUTE/mine.h"'],
)
def test_an_edit_of_a_header_is_seen_and_what_did_not_change_is_not_compiled_again(
    include, files, monkeypatch
):
    folder = files(mine_h="#define VALUE 1\n", sub__next_h='#  include "../mine.h"\n', other_h="")
    files(k_cu=f"#include {include.replace('/ABSOLUTE', folder.as_posix())}\n{KERNEL}")
    assert value(folder) == 1
    files(mine_h="#define VALUE 2\n")
    assert value(folder) == 2
    files(mine_h="#define VALUE 1\n", other_h="// nobody includes this\n")

    def compiled(*args):
        raise AssertionError("this was compiled before")

    monkeypatch.setattr(compile, "_compile", compiled)
    assert value(folder) == 1


@needs_nvrtc
def test_a_header_that_appears_on_an_earlier_path_or_goes_is_seen(files):
    folder = files(k_cu=f"#include <mine.h>\n{KERNEL}", late__mine_h="#define VALUE 1\n", early__x_h="")
    assert value(folder, "early", "late") == 1
    files(early__mine_h="#define VALUE 2\n")
    assert value(folder, "early", "late") == 2
    assert value(folder, "late", "early") == 1
    (folder / "early" / "mine.h").unlink()
    assert value(folder, "early", "late") == 1


@needs_nvrtc
def test_a_header_that_a_macro_names_is_read_each_time(files):
    folder = files(k_cu=f"#include MINE\n{KERNEL}", mine_h="#define VALUE 1\n")
    assert value(folder, defines=['MINE="mine.h"']) == 1
    files(mine_h="#define VALUE 2\n")
    assert value(folder, defines=['MINE="mine.h"']) == 2


@needs_nvrtc
def test_a_header_whose_presence_alone_counts_is_seen(files):
    folder = files(
        k_cu=f'#if __has_include("mine.h")\n#define VALUE 1\n#else\n#define VALUE 2\n#endif\n{KERNEL}'
    )
    assert value(folder) == 2
    files(mine_h="")
    assert value(folder) == 1


@needs_nvrtc
def test_a_file_of_the_folder_that_the_command_runs_in_is_not_taken(files, tmp_path, monkeypatch):
    folder = files(
        k_cu=f'#include "mine.h"\n{KERNEL}', mine_h="#define VALUE 1\n", cwd__mine_h="#define VALUE 2\n"
    )
    monkeypatch.chdir(folder / "cwd")
    assert value(folder) == 1


@needs_nvrtc
def test_an_edit_during_the_compilation_is_not_kept_under_the_old_files(files, monkeypatch):
    folder = files(k_cu=f'#include "mine.h"\n{KERNEL}', mine_h="#define VALUE 1\n")
    usual = compile._compile

    def slow(*args):
        files(mine_h="#define VALUE 2\n")
        return usual(*args)

    monkeypatch.setattr(compile, "_compile", slow)
    assert value(folder) == 2
    monkeypatch.setattr(compile, "_compile", usual)
    files(mine_h="#define VALUE 1\n")
    assert value(folder) == 1


@needs_nvrtc
def test_a_damaged_cache_is_no_answer(files, tmp_path):
    folder = files(k_cu=KERNEL.replace("VALUE", "3"))
    assert value(folder) == 3
    (kept,) = (tmp_path / "cache").rglob("*.json")
    for content in ("", "{}", "[1]", '["", {"k": 1}, 3]', "\xff"):
        kept.write_text(content, encoding="latin-1")
        assert value(folder) == 3


@settings(max_examples=50, deadline=None)
@given(
    edges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=10),
    edited=st.integers(0, 5),
)
def test_the_fingerprint_changes_with_each_file_that_can_be_reached_and_no_other(
    edges, edited, tmp_path_factory
):
    """Six headers that include each other in any way, in circles too; the source includes the first."""
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


def test_headers_of_cuda_count_by_the_date_of_their_folder(tmp_path):
    root = tmp_path / "include"
    (root / "crt").mkdir(parents=True)
    (root / "mma.h").write_text('#include "crt/mma.h"\n')
    (root / "crt" / "mma.h").write_text("#include MACRO\n")
    text = "#include <mma.h>\n"

    def now() -> str | None:
        return fingerprint(text, tmp_path, [root], [root])

    before = now()
    assert before and before == now() != fingerprint("", tmp_path, [root], [root])
    os.utime(root / "crt", ns=(1, 1))  # as an upgrade leaves it
    assert now() != before


# -- the standard library --------------------------------------------------------------------------
USED = "algorithm array cfloat climits cmath cstddef cstdint limits tuple type_traits cassert stdio.h string.h".split()


@needs_nvrtc
def test_headers_of_the_standard_library_and_of_cccl_compile():
    """One kernel that takes something from each."""
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
def test_headers_of_macros_and_types_compile_alone(name):
    kernel = 'extern "C" __global__ void k(int* x) { x[0] = sizeof(x); }'
    assert ".entry k" in compile.compile_ptx(f"#include <{name}>\n{kernel}", "own.cu")


@needs_nvrtc
def test_every_header_of_the_standard_library_has_its_twin():
    for name, text in standard.HEADERS.items():
        for twin in re.findall(r"#include <(.*)>", text):
            assert any((folder / twin).is_file() for folder in cuda_headers.folders()), (
                f"{name} includes {twin}"
            )


def test_cub_as_a_whole_is_what_kernels_may_use_of_it(tmp_path):
    """CUB's own cub.cuh is an #error for NVRTC; a reader's own string.h is what it is."""
    for name in ("cub/cub.cuh", "string.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    given = standard.provided([tmp_path])
    assert "string.h" not in given and "#include <cub/block/block_radix_sort.cuh>" in given["cub/cub.cuh"]


@needs_nvrtc
def test_a_header_of_ones_own_comes_before_the_standard_librarys(files):
    folder = files(k_cu=f"#include <string.h>\n{KERNEL}", mine__string_h="#define VALUE 4\n")
    assert value(folder, "mine") == 4


@needs_nvrtc
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#include <iostream>\n", "iostream was not found. It is a C++ header of the host, which NVRTC does not have"),
        ('#include "helper_cuda.h"\n', "helper_cuda.h was not found in a folder given by -I. If it is a header of the host"),
        ("#include <torch/extension.h>\n", "between #ifndef __CUDACC_RTC__ and #endif"),
        ("#include <curand_kernel.h>\n", "pip install nvidia-curand"),
        ("__host__ int half(int n) { return n / 2; }\n", "Only device code is compiled: put the host's functions"),
        ("int main() { return cudaDeviceSynchronize(); }\n", "Only device code is compiled: put the host's functions between #ifndef"),
    ],
)  # fmt: skip
def test_what_is_the_hosts_is_said_with_what_to_do(text, words):
    with pytest.raises(compile.CompileError) as e:
        compile.compile_ptx(text, "own.cu")
    assert words in str(e.value).partition("\n")[0]


def test_cccl_is_searched_after_the_headers_that_it_comes_with(monkeypatch, tmp_path):
    (tmp_path / "include" / "cccl").mkdir(parents=True)
    (tmp_path / "include" / "mma.h").touch()
    monkeypatch.setattr(cuda_headers, "_wheels", lambda: iter((tmp_path / "include",)))
    monkeypatch.setattr(cuda_headers, "_toolkits", lambda: iter(()))
    cuda_headers.folders.cache_clear()
    try:
        assert cuda_headers.folders() == (tmp_path / "include", tmp_path / "include" / "cccl")
    finally:
        cuda_headers.folders.cache_clear()
