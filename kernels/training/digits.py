"""Handwritten digits: 1,797 images of 8 x 8 pixels, in digits.npz.

Source: E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI Machine Learning Repository (1998), its test
set, as scikit-learn ships it. `python -m kernels.training.digits` writes the file again; it needs scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".npz")
COUNT, SIZE, CLASSES = 1797, 8, 10
MAX_PIXEL = 16  # a pixel counts the inked pixels among 16 of the scan
TRAINING = 1500  # images; the others test


@dataclass(frozen=True)
class Digits:
    """Images and their labels: float32 [n, 1, size, size] in 0 .. 1, int32 [n]."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


@cache
def _stored() -> tuple[np.ndarray, np.ndarray]:
    with np.load(FILE) as file:
        return file["images"], file["labels"]


def load(size: int = SIZE) -> tuple[Digits, Digits]:
    """Returns the training images (the first 1,500) and the test images (the other 297), of size x size pixels.

    Each pixel is repeated size / 8 times in each direction. ValueError if size is no multiple of 8.
    """
    if size <= 0 or size % SIZE:
        raise ValueError(f"size must be a multiple of {SIZE}, got {size}")
    images, labels = _stored()
    times = size // SIZE
    maps = images.astype(np.float32)[:, None] / np.float32(MAX_PIXEL)
    maps = maps.repeat(times, axis=2).repeat(times, axis=3)
    labels = labels.astype(np.int32)
    return Digits(maps[:TRAINING], labels[:TRAINING]), Digits(maps[TRAINING:], labels[TRAINING:])


def write() -> None:
    """Write digits.npz from scikit-learn's copy of the data set."""
    from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]  # not needed to run

    found = load_digits()
    images = found.data.reshape(COUNT, SIZE, SIZE).astype(np.uint8)
    np.savez_compressed(FILE, images=images, labels=found.target.astype(np.uint8))


if __name__ == "__main__":
    write()
