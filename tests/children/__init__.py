"""Processes that run jobs badly on purpose, for the tests and the benchmarks of the worker."""
