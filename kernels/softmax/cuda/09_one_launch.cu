// Softmax with many blocks per row in one launch.
//
// Idea: as in 07, each block has a part of a row. Here it keeps the part
// in registers, as a block of 06 does. x is then read once, and no second
// launch is needed. The blocks of a row exchange m and l during the
// launch, through global memory. A block stores both as one word of 64
// bits. Warp 0 of each block then loads the words of its row until all
// of them are new. l is never negative, so its sign bit is free: each
// launch stores the other sign than the launch before. The words begin
// as zeros.
// What limits it: HBM, and the slowest block of a row. All blocks must
// run at the same time. A part, with up to 3 floats before the row, must
// fit into the registers: N + 3 <= splits * BLOCK * PER.
//
// Launch: cooperative, grid M * splits, block BLOCK, whole warps. BLOCK
// and PER, a multiple of 4, are defines.

#include "../../cuda/grid.cuh"
#include "long_rows.cuh"

constexpr int FOURS = PER / 4;  // of a thread
constexpr unsigned SIGN = 1u << 31;

__device__ inline unsigned sign_of(Word word) {
  return (unsigned)(word >> 32) & SIGN;
}

// Returns m and l, with this sign, in one word.
__device__ inline Word word_of(Running part, unsigned sign) {
  unsigned l = __float_as_uint(part.l) & ~SIGN | sign;
  return (Word)l << 32 | __float_as_uint(part.m);
}

__device__ inline Running running_of(Word word) {
  unsigned l = (unsigned)(word >> 32) & ~SIGN;
  return {__uint_as_float((unsigned)word), __uint_as_float(l)};
}

// Returns the word as soon as it has this sign.
__device__ inline Word wait_for(const Word* part_ml, unsigned sign) {
  Word word = load_word(part_ml);
  while (sign_of(word) != sign) word = load_word(part_ml);
  return word;
}

extern "C" __global__ void __launch_bounds__(BLOCK) one_launch(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [M, N]
    Word* part_ml,                // [M, splits]: m and l of each part
    int N, int splits) {
  __shared__ __align__(8) Running of_warp[WARPS];
  __shared__ Running of_row;
  int row = blockIdx.x / splits, split = blockIdx.x % splits;
  int thread = threadIdx.x;
  x += (size_t)row * N, y += (size_t)row * N;  // [N]
  part_ml += (size_t)row * splits;             // [splits]
  Part part = part_of(x, N, split, splits);
  int first = part.start + 4 * thread;

  float4 values[FOURS];
#pragma unroll
  for (int i = 0; i < FOURS; ++i)
    values[i] = load_four(x, first + i * 4 * BLOCK, part.end);
  unsigned sign = 0;  // of this launch
  if (thread < 32) sign = SIGN ^ sign_of(load_word(part_ml + split));

  Running own = {-INFINITE, 0.0f};
#pragma unroll
  for (int i = 0; i < FOURS; ++i) own.m = fmaxf(own.m, max_of(values[i]));
#pragma unroll
  for (int i = 0; i < FOURS; ++i) {
    values[i] = exp_of(values[i], finite(own.m));
    own.l += sum_of(values[i]);
  }

  Running all = over_warp(own);
  if (thread % 32 == 0) of_warp[thread / 32] = all;
  __syncthreads();
  if (thread < 32) {
    all = thread < WARPS ? of_warp[thread] : Running{-INFINITE, 0.0f};
    all = over_warp(all);
    if (thread == 0) store_word(part_ml + split, word_of(all, sign));
    all = {-INFINITE, 0.0f};
    for (int i = thread; i < splits; i += 32)
      all = merge(all, running_of(wait_for(part_ml + i, sign)));
    all = over_warp(all);
    if (thread == 0) of_row = all;
  }
  __syncthreads();
  all = of_row;

  float factor = __expf(own.m - finite(all.m)) / all.l;
#pragma unroll
  for (int i = 0; i < FOURS; ++i)
    store_four(y, first + i * 4 * BLOCK, part.end, values[i], factor);
}
