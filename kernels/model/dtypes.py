"""Types of elements: bytes, NumPy types, types of results."""

from __future__ import annotations

INPUT_DTYPE = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8"}


# Names of NumPy's and PyTorch's types. "float" is none: it has 64 bits in NumPy and 32 in PyTorch.
SPELLINGS = {
    "float32": "fp32",
    "single": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
}


# Bytes of an element of A and B, and the type of C and C0, by the name of the type of A and B.
ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}


RESULT_DTYPE = {"fp32": "float32", "fp16": "float32", "bf16": "float32", "int8": "int32"}
