// Flash attention with register tiles: both products as in GEMM.
//
// Idea: a lane keeps TM rows by Bc / 8 keys of S, and TM rows by
// DP / 8 columns of O, so that a float from shared memory serves many
// multiply-adds. A warp has its rows of S to itself: maximum and sum
// pass from lane to lane, and P through shared memory that no other
// warp reads. cp.async brings V while Q is multiplied with K, and the
// next K while P is multiplied with V: one buffer each is enough. A
// lane's rows lie 4 apart and its keys 8 apart: with the padding no
// two lanes want different rows of one bank.
// What limits it: the multiply-adds of FP32. While a warp takes
// exponents or waits for the others it multiplies nothing, unless
// another block on its SM does.
//
// Launch: grid (ceil(N / Br), B*H), block 32 lanes for each 4 * TM
// rows of Br, shared memory 4 * ((Br + Bc) * (DP + 4) + Bc * DP +
// Br * (Bc + 8)) bytes. Br, Bc, TM and DP, a multiple of 32 that is d
// or more, are defines.

#include "../gemm/async.cuh"
#include "../gemm/gemm.cuh"
#include "attention.cuh"

constexpr int THREADS = Br / TM * 8;
constexpr int TN = Bc / 8, TD = DP / 8;  // of a lane: keys, columns

// Blocks that must fit an SM together: as many as leave each thread
// 168 registers, or 255 if its sums alone take more than 64.
constexpr int ROOM = TM * (TN + TD) > 64 ? 256 : 384;  // threads
constexpr int RESIDENT = THREADS < ROOM ? ROOM / THREADS : 1;

// Begins to copy Bc rows of X, of which `rows` are left and each has
// d floats, to Xs; zeros stand beyond.
template <int PITCH>
__device__ inline void fetch(float* Xs, const float* X, int rows,
                             int d) {
  constexpr int ACROSS = DP / 4;
  for (int i = threadIdx.x; i < Bc * ACROSS; i += THREADS) {
    int row = i / ACROSS, col = i % ACROSS * 4;
    float* to = Xs + row * PITCH + col;
    const float* from = X + (size_t)row * d + col;
    int left = row < rows ? d - col : 0;
    if (d % 4 == 0)  // then each row begins on 16 bytes
      copy_async<16>(to, from, left > 0);
    else
      copy4_async<false>(to, from, left);
  }
  close_group();
}

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) flash_registers(
    const float* __restrict__ Q,  // [B*H, N, d]
    const float* __restrict__ K,  // [B*H, N, d]
    const float* __restrict__ V,  // [B*H, N, d]
    float* __restrict__ O,        // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ __align__(16) float shared[];
  auto Qs = (float (*)[DP + 4])shared;   // [Br]
  auto Ks = (float (*)[DP + 4])&Qs[Br];  // [Bc]
  auto Vs = (float (*)[DP])&Ks[Bc];      // [Bc]
  auto Ps = (float (*)[Bc + 8])&Vs[Bc];  // [Br]
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int y = lane / 16 * 2 + lane % 2;  // lanes in pairs, as in GEMM's
  int x = lane / 2 % 8;              // warp tile: 4 down, 8 across
  int row = warp * 4 * TM + y;       // its first row of the tile
  // If causal, the last rows have the most work: they come first.
  int tile = causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  int q0 = tile * Br;
  size_t head = (size_t)blockIdx.y * N * d;
  Q += head + (size_t)q0 * d, O += head + (size_t)q0 * d;
  K += head, V += head;

  // Scores are wanted as powers of 2: Q takes all factors.
  float factor = scale * LOG2E;
  for (int i = threadIdx.x; i < Br * (DP / 4); i += THREADS) {
    int r = i / (DP / 4), k = i % (DP / 4) * 4;
    float4 q = load4(Q, N - q0, d, r, k);
    q.x *= factor, q.y *= factor, q.z *= factor, q.w *= factor;
    *(float4*)&Qs[r][k] = q;
  }

  float o[TM][TD] = {}, l[TM] = {}, m[TM];
#pragma unroll
  for (int i = 0; i < TM; ++i) m[i] = -INFINITE;
  int end = seen(q0 + Br - 1, N, causal);
  fetch<DP + 4>(Ks[0], K, N, d);
#pragma unroll 1
  for (int j0 = 0; j0 < end; j0 += Bc) {
    wait_groups<0>();
    __syncthreads();  // K is there, and the V before it is used up
    fetch<DP>(Vs[0], V + (size_t)j0 * d, N - j0, d);

    float s[TM][TN] = {};  // S = Q K^T
#pragma unroll 2
    for (int k = 0; k < DP; k += 4) {
      float4 q[TM];
#pragma unroll
      for (int i = 0; i < TM; ++i)
        q[i] = *(float4*)&Qs[row + 4 * i][k];
#pragma unroll
      for (int n = 0; n < TN; ++n) {
        float4 key = *(float4*)&Ks[x + 8 * n][k];
#pragma unroll
        for (int i = 0; i < TM; ++i) {
          s[i][n] += q[i].x * key.x;
          s[i][n] += q[i].y * key.y;
          s[i][n] += q[i].z * key.z;
          s[i][n] += q[i].w * key.w;
        }
      }
    }
    if (j0 + Bc > seen(q0, N, causal)) {  // some keys are hidden
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int n = 0; n < TN; ++n)
          if (j0 + x + 8 * n >= seen(q0 + row + 4 * i, N, causal))
            s[i][n] = -INFINITE;
    }

#pragma unroll
    for (int i = 0; i < TM; ++i) {
      float most = m[i];
#pragma unroll
      for (int n = 0; n < TN; ++n) most = fmaxf(most, s[i][n]);
#pragma unroll
      for (int other = 2; other < 16; other *= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, other));
      // No score yet but -infinity: any finite base gives zeros.
      float base = most == -INFINITE ? 0.0f : most;
      float shrink = exp2_(m[i] - base);
      m[i] = most;
      l[i] *= shrink;  // of the keys that this lane has seen
#pragma unroll
      for (int n = 0; n < TN; ++n) {
        float p = exp2_(s[i][n] - base);
        l[i] += p;
        Ps[row + 4 * i][x + 8 * n] = p;
      }
#pragma unroll
      for (int n = 0; n < TD; ++n) o[i][n] *= shrink;
    }

    wait_groups<0>();
    __syncthreads();  // V is there, P too, and K is used up
    if (j0 + Bc < end)
      fetch<DP + 4>(Ks[0], K + (size_t)(j0 + Bc) * d, N - j0 - Bc, d);
#pragma unroll 2
    for (int j = 0; j < Bc; j += 4) {  // O = O + P V
      __align__(16) float p[TM][4];
#pragma unroll
      for (int i = 0; i < TM; ++i)
        *(float4*)p[i] = *(float4*)&Ps[row + 4 * i][j];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        __align__(16) float v[TD];
#pragma unroll
        for (int n = 0; n < TD; n += 4)
          *(float4*)&v[n] = *(float4*)&Vs[j + k][4 * x + 8 * n];
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int n = 0; n < TD; ++n) o[i][n] += p[i][k] * v[n];
      }
    }
  }

#pragma unroll
  for (int i = 0; i < TM; ++i) {
#pragma unroll
    for (int other = 2; other < 16; other *= 2)
      l[i] += __shfl_xor_sync(~0u, l[i], other);
#pragma unroll
    for (int n = 0; n < TD; n += 4)
      store4(O, O, N - q0, d, row + 4 * i, 4 * x + 8 * n, &o[i][n],
             1 / l[i], 0);
  }
}
