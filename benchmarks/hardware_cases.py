"""The kernels and shapes for the comparison of the emulator's counters with Nsight Compute's: every kernel of the
project at two or more shapes, including ragged ones, except those in EXCLUDED."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache

from benchmarks import hardware_cases_rungs as rungs
from benchmarks import hardware_cases_teaching as teaching
from benchmarks import hardware_cases_wmma as wmma
from benchmarks.hardware_case import Case

# Sources that are no cases, by the beginning of their path, and why.
EXCLUDED = {
    "collectives/": "they run on several GPUs at once, which Nsight Compute would let wait for each other for ever",
    "machine/": "they measure the device: no memory counter has anything to count",
}
# Sources whose cases no GPU has counted yet. Measure them, then take them out.
NOT_YET = {
    "conv/40_half_implicit_gemm.cu",
    "conv/41_half_boxes.cu",
    "conv/42_half_im2col.cu",
    "conv/43_half_halo.cu",
    "attention/24_flash_wgmma_queries.cu",
    "attention/25_flash_wgmma_keys.cu",
    "conv/44_half_halo_split.cu",
    "attention/30_flash_variants.cu",
    "attention/31_flash_mma_variants.cu",
    "attention/32_decode_parts.cu",
    "attention/33_decode_merge.cu",
    "elementwise/19_gelu.cu",
    "elementwise/20_gelu_float4.cu",
    "elementwise/21_gelu_backward.cu",
    "elementwise/22_gelu_backward_float4.cu",
    "attention/15_flash_wgmma.cu",
    "attention/16_flash_consumers.cu",
    "attention/17_flash_ping_pong.cu",
    "attention/18_flash_overlap.cu",
    "elementwise/23_bias_backward_streaming.cu",
    "fusion/fp16_conv_bias_add_relu.cu",
    "fusion/fp16_conv_bn_relu.cu",
    "fusion/implicit_conv_bias_bn_relu_add.cu",
    "attention/19_flash_balanced.cu",
    "gemm/13_wgmma.cu",
    "gemm/14_wgmma_ring.cu",
    "gemm/15_wgmma_consumers.cu",
    "gemm/16_wgmma_persistent.cu",
    "gemm/17_wgmma_store.cu",
    "gemm/18_wgmma_cluster.cu",
    "softmax/06_cluster.cu",
    "softmax/07_split_parts.cu",
    "softmax/08_split_finish.cu",
    "gemm/30_mma_bytes.cu",
    "gemm/31_wgmma_bytes.cu",
    "gemm/32_wgmma_turns.cu",
    "gemm/33_wgmma_promoted.cu",
    "gemm/20_register_pipeline.cu",
    "gemm/21_grouped_order.cu",
    "gemm/22_transposed_ring.cu",
    "gemm/23_tf32x3.cu",
    "norm/31_sum_partials_pair.cu",
    "pooling/15_global_tile.cu",
    "pooling/16_global_streaming.cu",
}


@cache
def cases() -> dict[str, Case]:
    """Returns every case by name, in the order of the launches."""
    all_cases = (
        *teaching.CASES, *rungs.IM2COL, *rungs.MEMORY, *rungs.GEMM, *rungs.EIGHT_BIT, *rungs.CONV, *rungs.ATTENTION,
        *rungs.SOFTMAX, *rungs.FUSION, *rungs.FUSION_FP16, *rungs.ELEMENTWISE, *rungs.OPTIMIZER, *rungs.CROSS_ENTROPY,
        *rungs.NORM, *rungs.LINEAR, *rungs.ATTENTION_BACKWARD, *rungs.POOLING, *rungs.EMBEDDING,
        *rungs.CONV_BACKWARD, *rungs.CONV_FP16, *rungs.ATTENTION_LSE, *rungs.HEADS, *rungs.INSTRUCTION_RATE, *wmma.CASES,
    )  # fmt: skip
    named = {case.name: case for case in all_cases}
    assert len(named) == len(all_cases), "two cases bear one name"
    return named


def named(*patterns: str) -> dict[str, Case]:
    """Returns the cases whose names match one of the patterns ("wmma-*"), or all cases. ValueError if none matches."""
    chosen = {
        name: case
        for name, case in cases().items()
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    if not chosen:
        raise ValueError(f"no case is named like {' or '.join(patterns)}")
    return chosen
