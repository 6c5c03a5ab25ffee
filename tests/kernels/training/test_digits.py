"""The handwritten digits."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.training import digits


def test_every_image_is_there_once():
    training, test = digits.load()
    assert len(training) == digits.TRAINING and len(training) + len(test) == digits.COUNT
    images = np.concatenate([training.images, test.images])
    assert images.shape == (digits.COUNT, 1, 8, 8) and images.dtype == np.float32
    assert images.min() == 0 and images.max() == 1
    # The sums of the source, counted with scikit-learn 1.9.
    labels = np.concatenate([training.labels, test.labels])
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_each_pixel_is_repeated():
    (small, _), (large, _) = digits.load(8), digits.load(32)
    assert large.images.shape[2:] == (32, 32)
    np.testing.assert_array_equal(large.images[:, :, 3::4, ::4], small.images)


@pytest.mark.parametrize("size", [0, 7, 28])
def test_other_sizes_are_refused(size):
    with pytest.raises(ValueError, match="multiple of 8"):
        digits.load(size)
