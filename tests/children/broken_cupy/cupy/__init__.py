"""Fails as CuPy 14 does when one of its own compiled modules does not load."""

raise ImportError(
    """
================================================================
Failed to import CuPy.

If you installed CuPy via wheels (cupy-cudaXXX or cupy-rocm-X-X), make sure that the package matches with the version of CUDA or ROCm installed.

Original error:
  ImportError: libstdc++.so.6: cannot open shared object file: No such file or directory
================================================================
"""
)
