"""The random numbers of the emulator's tests begin anew with each test, in whichever process."""

import pytest

from tests.unit import emulated_numbers


@pytest.fixture(autouse=True)
def _same_numbers():
    emulated_numbers.rng.bit_generator.state = emulated_numbers.START
