// FP16 multiply-adds in pairs: two products an instruction.
//
// Idea: a register holds two FP16 numbers. One instruction adds two
// products, those of neighbouring columns, to two sums: the warp
// executes 64 for a product of the matrices. The sums are FP16 too.
// Beyond 2048 they would lose whole numbers. So every FOLD turns they
// are added to FP32 sums. The rest is as in 01_ffma.cu.
// What limits it: the FP16 units, and control, which is now spread
// over twice as many multiply-adds.
//
// Launch: grid ceil(warps / (BLOCK / 32)), block BLOCK.

constexpr int FOLD = 16;  // turns: 16 * 32 products of at most 4

// Two equal or two different whole numbers as a pair of FP16.
__device__ inline unsigned pair(int low, int high) {
  unsigned short l, h;
  asm("cvt.rn.f16.s32 %0, %1;" : "=h"(l) : "r"(low));
  asm("cvt.rn.f16.s32 %0, %1;" : "=h"(h) : "r"(high));
  return l | (unsigned)h << 16;
}

__device__ inline float as_float(unsigned short half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
}

// Both halves of sum += a * b.
__device__ inline void hfma2_add(unsigned& sum, unsigned a,
                                 unsigned b) {
  asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
}

extern "C" __global__ void __launch_bounds__(BLOCK)
hfma2(
    const signed char* __restrict__ A,  // [16, 32], in 0 .. 2
    const signed char* __restrict__ B,  // [32, 8], in 0 .. 2
    float* __restrict__ C,              // [warps, 16, 8]
    int warps, int turns) {
  int warp = (blockIdx.x * BLOCK + threadIdx.x) / 32;
  if (warp >= warps) return;
  int lane = threadIdx.x % 32;
  int row = lane / 4, col = lane % 4 * 2;
  unsigned a[2][32], b[32];
#pragma unroll
  for (int k = 0; k < 32; ++k) {
    b[k] = pair(B[k * 8 + col], B[k * 8 + col + 1]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int value = A[(row + 8 * i) * 32 + k];
      a[i][k] = pair(value, value);
    }
  }

  // Sums of even and of odd k, so that two neighbouring
  // instructions do not wait for each other.
  unsigned pairs[2][2] = {};
  float sum[2][2] = {};
#pragma unroll 1
  for (int first = 0; first < turns; first += FOLD) {
#pragma unroll 1
    for (int turn = first; turn < min(first + FOLD, turns); ++turn) {
#pragma unroll
      for (int k = 0; k < 32; ++k)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          hfma2_add(pairs[k % 2][i], a[i][k], b[k]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        sum[i][0] += as_float(pairs[odd][i] & 0xffff);
        sum[i][1] += as_float(pairs[odd][i] >> 16);
        pairs[odd][i] = 0;
      }
    }
  }

  float* c = C + (size_t)warp * 128;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      c[(row + 8 * i) * 8 + col + j] = sum[i][j];
}
