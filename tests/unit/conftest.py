"""The random numbers of the emulator's tests begin anew with each test, in whichever process."""

import gc

import pytest

from tests.unit import emulated_numbers

# A decoded kernel is 10^5 objects that live as long as its launch: at Python's own thresholds the collector
# walks them again and again, half of the time of these tests.
gc.set_threshold(200_000, 20, 100)


@pytest.fixture(autouse=True)
def _same_numbers():
    emulated_numbers.rng.bit_generator.state = emulated_numbers.START
