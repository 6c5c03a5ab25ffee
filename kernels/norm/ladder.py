"""The norm ladders: batch norm (training, inference, backward), layer norm and RMS norm (forward and backward)."""

from __future__ import annotations

from kernels.norm.maps_ladder import BATCH_NORM, BATCH_NORM_BACKWARD, BATCH_NORM_INFERENCE
from kernels.norm.rows_ladder import LAYER_NORM, LAYER_NORM_BACKWARD, RMS_NORM, RMS_NORM_BACKWARD

LADDERS = (
    BATCH_NORM,
    BATCH_NORM_INFERENCE,
    BATCH_NORM_BACKWARD,
    LAYER_NORM,
    LAYER_NORM_BACKWARD,
    RMS_NORM,
    RMS_NORM_BACKWARD,
)
