// Flash attention on tensor cores, as FlashAttention-2 has it (arXiv
// 2307.08691): Q, K, V and O are halves, sums FP32.
//
// Idea: both products by mma.sync. A warp has WM rows of S and of O
// to itself, in registers. A row lies in four lanes, so that its
// maximum takes two shuffles; and P never goes to memory, for a lane
// has sums of mma where mma wants its left factor: they are rounded
// to halves and used. cp.async brings K and V STAGES - 1 tiles
// ahead, so that a tile takes one barrier.
// What limits it: exponents. An SM makes 16 of them a cycle, and
// while a warp waits for its own, only other warps keep the tensor
// cores busy.
//
// Launch: grid (ceil(N / Br), B*H), block 32 lanes for each WM rows
// of Br, shared memory 2 * (Br + 2 * STAGES * Bc) * (DP + 8) bytes.
// Br, Bc, WM, STAGES, BF16 and DP, a multiple of 16 that is d or
// more, are defines.

#include "attention.cuh"
#include "flash_mma.cuh"

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) flash_mma(
    const Half* __restrict__ Q,  // [B*H, N, d]
    const Half* __restrict__ K,  // [B*H, N, d]
    const Half* __restrict__ V,  // [B*H, N, d]
    Half* __restrict__ O,        // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ __align__(16) char shared[];
  auto Qs = (Half*)shared;    // [Br, PITCH]
  auto Ks = Qs + Br * PITCH;  // [Bc, PITCH], STAGES times
  auto Vs = Ks + Bc * PITCH;  // [Bc, PITCH], after each Ks
  int row = threadIdx.x / 32 * WM;  // the warp's first of the tile
  // If causal, the last rows have the most work: they come first.
  int tile = causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  int q0 = tile * Br;
  size_t head = (size_t)blockIdx.y * N * d;
  Q += head, K += head, V += head, O += head;

  int end = seen(q0 + Br - 1, N, causal);
  auto fetch_tile = [&](int stage, int j0) {
    if (j0 < end) {
      size_t at = (size_t)j0 * d;
      fetch<Bc>(Ks + stage * STAGE, K + at, N - j0, d);
      fetch<Bc>(Vs + stage * STAGE, V + at, N - j0, d);
    }
    close_group();
  };
  fetch<Br>(Qs, Q + (size_t)q0 * d, N - q0, d);
  for (int s = 0; s < STAGES - 1; ++s) fetch_tile(s, s * Bc);
  wait_groups<STAGES - 2>();
  __syncthreads();

  // The largest score must stay the largest times factor: of a
  // negative scale the sign goes to Q, which is exact.
  float factor = fabsf(scale) * LOG2E;  // for powers of 2
  unsigned sign = scale < 0 ? 0x80008000 : 0;
  Qs += row * PITCH;
  Queries q[HELD ? DP / 16 : 1];
  if (HELD)
#pragma unroll
    for (int k = 0; k < DP / 16; ++k)
      load_queries(q[k], Qs + k * 16, sign);

  Values o = {};
  Rows l = {}, m;
#pragma unroll
  for (int i = 0; i < BANDS; ++i) m[i][0] = m[i][1] = -INFINITE;
  int least = seen(q0 + row, N, causal);  // by the warp's queries
  int most = seen(q0 + row + WM - 1, N, causal);
  int stage = 0, filled = STAGES - 1;
#pragma unroll 1
  for (int j0 = 0; j0 < end; j0 += Bc) {
    fetch_tile(filled, j0 + (STAGES - 1) * Bc);
    if (j0 < most) {
      Scores s = {};
#pragma unroll
      for (int k = 0; k < DP / 16; ++k) {
        if (!HELD) load_queries(q[0], Qs + k * 16, sign);
        add_scores(s, q[HELD ? k : 0], Ks + stage * STAGE + k * 16);
      }
      if (j0 + Bc > least) hide(s, least - j0, causal);
      Rows base, shrink;
      move_bases(s, factor, m, base, shrink);
      scale_rows(o, shrink);
#pragma unroll
      for (int i = 0; i < BANDS; ++i)
        l[i][0] *= shrink[i][0], l[i][1] *= shrink[i][1];
#pragma unroll
      for (int n = 0; n < Bc / 16; ++n) {
        unsigned p[BANDS][4];
        take_exponents(p, s, 2 * n, factor, base, l);
        add_values(o, p, Vs + stage * STAGE + n * 16 * PITCH);
      }
    }
    wait_groups<STAGES - 2>();
    __syncthreads();  // the next is there, and all have used this
    filled = stage;
    stage = stage + 1 < STAGES ? stage + 1 : 0;
  }

#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = l[i][h];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      int r = q0 + row + i * 16 + h * 8 + threadIdx.x % 32 / 4;
      if (r < N) write_row(O + (size_t)r * d, o[i], h, sum, d);
    }
}
