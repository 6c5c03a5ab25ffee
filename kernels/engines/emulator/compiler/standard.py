"""Headers of the C and C++ standard libraries for kernels: NVRTC itself has none.

Each includes the same header of libcu++, NVIDIA's standard library for device code, and adds its names to std. Headers
of functions that NVRTC has built in (printf, memcpy, assert, the functions of math.h) are nearly empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_LIBCUXX = (
    "algorithm array bit bitset cfloat chrono climits cmath complex concepts cstddef cstdint cstdlib cstring ctime "
    "functional initializer_list iterator limits memory numeric optional random ratio span tuple type_traits utility "
    "variant"
).split()
_NAMED_AS_C = {
    "cinttypes": "cstdint",
    "inttypes.h": "cstdint",
    "float.h": "cfloat",
    "limits.h": "climits",
    "stddef.h": "cstddef",
    "stdint.h": "cstdint",
}
_BUILT_IN = ("assert.h", "cassert", "cstdio", "new", "stdbool.h", "stdio.h", "stdlib.h", "string.h", "time.h")
_MATH = """#pragma once
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000)
#define HUGE_VALF __int_as_float(0x7f800000)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
"""


# nvcc includes cuda_runtime.h in every file, which declares these names of the host's C library.
IMPLICIT = "implicit.h"
_TYPES = {"char": 8, "short": 16, "int": 32, "long long": 64}
_INTEGERS = "".join(
    f"typedef signed {type_} int{bits}_t; typedef unsigned {type_} uint{bits}_t;\n" for type_, bits in _TYPES.items()
)
_SHORT = "typedef unsigned short ushort; typedef unsigned int uint; typedef unsigned long ulong;\n"
_LIMITS = """#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295U
#define LLONG_MAX 9223372036854775807LL
#define LLONG_MIN (-LLONG_MAX - 1)
#define ULLONG_MAX 18446744073709551615ULL
"""


def _forwarding(header: str) -> str:
    # Headers with only macros do not declare the namespace.
    return (
        f"#pragma once\n#include <cuda/std/{header}>\nnamespace cuda {{ namespace std {{}} }}\n"
        "namespace std { using namespace cuda::std; }\n"
    )


# cub/cub.cuh does not compile with NVRTC: it also has functions for the host. These of its headers are for kernels.
_CUB = {
    "block": "adjacent_difference discontinuity exchange histogram load merge_sort radix_sort reduce scan shuffle store",
    "warp": "exchange load merge_sort reduce scan store",
}
_CUB_INCLUDES = "".join(
    f"#include <cub/{level}/{level}_{part}.cuh>\n" for level, parts in _CUB.items() for part in parts.split()
)
REPLACEMENTS = {"cub/cub.cuh": f"#pragma once\n{_CUB_INCLUDES}"}  # replace files that exist

HEADERS = {
    **REPLACEMENTS,
    **dict.fromkeys(_BUILT_IN, "#pragma once\n"),
    **{name: _forwarding(name) for name in _LIBCUXX},
    **{name: _forwarding(header) for name, header in _NAMED_AS_C.items()},
    "math.h": _MATH,
    "cmath": _MATH + _forwarding("cmath"),
    IMPLICIT: _MATH
    + "typedef unsigned long long uintptr_t; typedef long long intptr_t;\n"
    + _SHORT
    + _INTEGERS
    + _LIMITS,
}


def provided(folders: Iterable[Path]) -> dict[str, str]:
    """Returns the texts, by name, of the headers that none of these folders has (NVRTC would prefer a text to a file),
    and of those that replace a file."""
    return {
        name: text
        for name, text in HEADERS.items()
        if name in REPLACEMENTS or not any((f / name).is_file() for f in folders)
    }
