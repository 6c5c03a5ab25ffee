"""The networks of kernels.training.networks in plain PyTorch, for comparison: the same layers, written by hand.

`build` returns a module with random weights; `load` gives it ours. A module registers its weights in the order in which
our layers own theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LeNet5(nn.Module):
    """Images [N, 1, 32, 32] to [N, 10]."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut, which is a 1 x 1 convolution if the stride is above 1."""

    def __init__(self, C: int, K: int, stride: int):
        super().__init__()
        self.has_shortcut = stride > 1
        if self.has_shortcut:
            self.shortcut, self.shortcut_norm = nn.Conv2d(C, K, 1, stride, bias=False), nn.BatchNorm2d(K)
        self.a, self.a_norm = nn.Conv2d(C, K, 3, stride, 1, bias=False), nn.BatchNorm2d(K)
        self.b, self.b_norm = nn.Conv2d(K, K, 3, 1, 1, bias=False), nn.BatchNorm2d(K)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.shortcut_norm(self.shortcut(x)) if self.has_shortcut else x
        y = F.relu(self.a_norm(self.a(x)))
        return F.relu(self.b_norm(self.b(y)) + shortcut)


class Residual(nn.Module):
    """Images [N, 1, 8, 8] to [N, 10]."""

    def __init__(self):
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.block1, self.block2 = ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2)
        self.fc = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block2(self.block1(F.relu(self.stem_norm(self.stem(x)))))
        return self.fc(x.mean(dim=(2, 3)))


class EncoderBlock(nn.Module):
    """Attention, then two layers for each token, with a norm before and a sum after each: tokens [N, T, D]."""

    def __init__(self, D: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.qkv, self.out = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.norm2, self.fc1, self.fc2 = nn.LayerNorm(D), nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.out(self.attention(self.qkv(self.norm1(x))))
        return x + self.fc2(F.relu(self.fc1(self.norm2(x))))

    def attention(self, qkv: Tensor) -> Tensor:
        N, T, width = qkv.shape
        d = width // (3 * self.heads)
        q, k, v = qkv.view(N, T, 3, self.heads, d).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(q @ k.transpose(2, 3) / d**0.5, dim=3)
        return (weights @ v).transpose(1, 2).reshape(N, T, width // 3)


class Transformer(nn.Module):
    """Images [N, 1, 8, 8], each row of pixels a token, to [N, 10]."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Linear(8, 32)
        self.position = Position(8, 32)
        self.block1, self.block2 = EncoderBlock(32, 4), EncoderBlock(32, 4)
        self.norm, self.fc = nn.LayerNorm(32), nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.position(self.embedding(x.flatten(0, 1)))
        x = self.norm(self.block2(self.block1(x)))
        return self.fc(x.flatten(1))


class Position(nn.Module):
    """Adds a learned vector to each position of the tokens."""

    def __init__(self, T: int, D: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(T, D))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight


NETWORKS: Mapping[str, Callable[[], nn.Module]] = {"lenet5": LeNet5, "residual": Residual, "transformer": Transformer}


def build(network_name: str) -> nn.Module:
    """Returns a network of kernels.training.networks by its name, in float32 on the processor, in training mode."""
    return NETWORKS[network_name]()


def load(module: nn.Module, weights: Mapping[str, np.ndarray]) -> None:
    """Copies our weights, by their names in the order of our layers, into the module's. ValueError if a shape or the number
    of weights differs."""
    own = dict(module.named_parameters())
    if len(own) != len(weights):
        raise ValueError(f"the module has {len(own)} weights, ours are {len(weights)}")
    for (name, parameter), (our_name, array) in zip(own.items(), weights.items(), strict=True):
        if tuple(parameter.shape) != array.shape:
            raise ValueError(f"{name} {tuple(parameter.shape)} cannot be {our_name} {array.shape}")
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(np.array(array)))
