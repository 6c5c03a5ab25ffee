// Flash attention with register tiles, for training: it also stores L.
//
// Idea: as 05_flash_registers.cu. At the end a row has its maximum m
// and its sum l. L = m + log(l) is all that the backward pass needs to
// compute the weights of the row again. It is one number per query,
// where P would be N. m is kept for powers of 2, so L is the sum of m
// and log2(l), times log(2).
// What limits it: the FP32 multiply-adds, as without L.
//
// Launch: grid (ceil(N / Br), B*H), block 32 lanes for each 4 * TM
// rows of Br, shared memory 4 * ((Br + Bc) * (DP + 4) + Bc * DP +
// Br * (Bc + 8)) bytes. Br, Bc, TM and DP are defines. DP is a multiple
// of 32, d or more.

#include "../../cuda/async.cuh"
#include "../../cuda/gemm.cuh"
#include "attention.cuh"

constexpr float LN2 = 0.693147181f;  // log(x) = log2(x) * LN2
constexpr int THREADS = Br / TM * 8;
constexpr int TN = Bc / 8, TD = DP / 8;  // keys, columns of a lane

// Blocks that share an SM. Each thread then has 168 registers, or 255
// if its sums alone need more than 64. ROOM is the number of threads.
constexpr int ROOM = TM * (TN + TD) > 64 ? 256 : 384;
constexpr int RESIDENT = THREADS < ROOM ? ROOM / THREADS : 1;

// Begins to copy Bc rows of X, K or V, to a tile. X has `rows_left`
// rows from here on, of d floats each. Elements outside become zero.
template <int PITCH>
__device__ inline void load_tile(float* tile, const float* X,
                                 int rows_left, int d) {
  constexpr int ACROSS = DP / 4;  // copies of 4 floats in a row
  for (int i = threadIdx.x; i < Bc * ACROSS; i += THREADS) {
    int row = i / ACROSS, col = i % ACROSS * 4;
    float* target = tile + row * PITCH + col;
    const float* source = X + (size_t)row * d + col;
    int floats_left = row < rows_left ? d - col : 0;
    if (d % 4 == 0)  // then each row begins on 16 bytes
      copy_async<16>(target, source, floats_left > 0);
    else
      copy4_async<false>(target, source, floats_left);
  }
  close_group();
}

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) flash_registers_lse(
    const float* __restrict__ Q,  // [B*H, N, d]
    const float* __restrict__ K,  // [B*H, N, d]
    const float* __restrict__ V,  // [B*H, N, d]
    float* __restrict__ O,        // [B*H, N, d]
    float* __restrict__ L,        // [B*H, N]
    int N, int d, float scale, int causal) {
  extern __shared__ __align__(16) float shared[];
  auto tile_q = (float (*)[DP + 4])shared;       // [Br]
  auto tile_k = (float (*)[DP + 4])&tile_q[Br];  // [Bc]
  auto tile_v = (float (*)[DP])&tile_k[Bc];      // [Bc]
  auto tile_p = (float (*)[Bc + 8])&tile_v[Bc];  // [Br]
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // 4 rows by 8 columns of lanes, in pairs as in GEMM's warp tile.
  int lane_row = lane / 16 * 2 + lane % 2;
  int lane_col = lane / 2 % 8;
  int thread_row = warp * 4 * TM + lane_row;  // its first in the tile
  // If causal, the last rows have the most work: they start first.
  int query_tile = causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  int block_query = query_tile * Br;
  size_t head = (size_t)blockIdx.y * N * d;
  Q += head + (size_t)block_query * d;
  O += head + (size_t)block_query * d;
  K += head, V += head;
  L += (size_t)blockIdx.y * N;

  // The weights are computed as powers of 2: Q contains all factors.
  float factor = scale * LOG2E;
  for (int i = threadIdx.x; i < Br * (DP / 4); i += THREADS) {
    int row = i / (DP / 4), dim = i % (DP / 4) * 4;
    float4 q = load4(Q, N - block_query, d, row, dim);
    q.x *= factor, q.y *= factor, q.z *= factor, q.w *= factor;
    *(float4*)&tile_q[row][dim] = q;
  }

  float o[TM][TD] = {}, l[TM] = {}, m[TM];
#pragma unroll
  for (int i = 0; i < TM; ++i) m[i] = -INFINITE;
  int key_end = visible_keys(block_query + Br - 1, N, causal);
  load_tile<DP + 4>(tile_k[0], K, N, d);
#pragma unroll 1
  for (int key_tile = 0; key_tile < key_end; key_tile += Bc) {
    wait_groups<0>();
    __syncthreads();  // K is loaded; all have used the old V
    load_tile<DP>(tile_v[0], V + (size_t)key_tile * d, N - key_tile, d);

    float s[TM][TN] = {};  // S = Q K^T
#pragma unroll 2
    for (int dim = 0; dim < DP; dim += 4) {
      float4 q[TM];
#pragma unroll
      for (int i = 0; i < TM; ++i)
        q[i] = *(float4*)&tile_q[thread_row + 4 * i][dim];
#pragma unroll
      for (int n = 0; n < TN; ++n) {
        float4 k = *(float4*)&tile_k[lane_col + 8 * n][dim];
#pragma unroll
        for (int i = 0; i < TM; ++i) {
          s[i][n] += q[i].x * k.x;
          s[i][n] += q[i].y * k.y;
          s[i][n] += q[i].z * k.z;
          s[i][n] += q[i].w * k.w;
        }
      }
    }
    // Some keys of the tile are hidden from some queries.
    if (key_tile + Bc > visible_keys(block_query, N, causal)) {
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int n = 0; n < TN; ++n)
          if (key_tile + lane_col + 8 * n >=
              visible_keys(block_query + thread_row + 4 * i, N, causal))
            s[i][n] = -INFINITE;
    }

#pragma unroll
    for (int i = 0; i < TM; ++i) {
      float new_m = m[i];
#pragma unroll
      for (int n = 0; n < TN; ++n) new_m = fmaxf(new_m, s[i][n]);
#pragma unroll
      for (int lane_mask = 2; lane_mask < 16; lane_mask *= 2)
        new_m = fmaxf(new_m, __shfl_xor_sync(~0u, new_m, lane_mask));
      // If all scores so far are -infinity, any finite base gives
      // zeros.
      float base = new_m == -INFINITE ? 0.0f : new_m;
      float rescale = exp2_(m[i] - base);
      m[i] = new_m;
      l[i] *= rescale;  // over this lane's keys
#pragma unroll
      for (int n = 0; n < TN; ++n) {
        float p = exp2_(s[i][n] - base);
        l[i] += p;
        tile_p[thread_row + 4 * i][lane_col + 8 * n] = p;
      }
#pragma unroll
      for (int n = 0; n < TD; ++n) o[i][n] *= rescale;
    }

    wait_groups<0>();
    __syncthreads();  // V and P are there; all have used K
    if (key_tile + Bc < key_end)
      load_tile<DP + 4>(tile_k[0], K + (size_t)(key_tile + Bc) * d,
                        N - key_tile - Bc, d);
#pragma unroll 2
    for (int key = 0; key < Bc; key += 4) {  // O = O + P V
      __align__(16) float p[TM][4];
#pragma unroll
      for (int i = 0; i < TM; ++i)
        *(float4*)p[i] = *(float4*)&tile_p[thread_row + 4 * i][key];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        __align__(16) float v[TD];
#pragma unroll
        for (int n = 0; n < TD; n += 4)
          *(float4*)&v[n] =
              *(float4*)&tile_v[key + k][4 * lane_col + 8 * n];
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
    for (int lane_mask = 2; lane_mask < 16; lane_mask *= 2)
      l[i] += __shfl_xor_sync(~0u, l[i], lane_mask);
    int query = block_query + thread_row + 4 * i;
    if (lane_col == 0 && query < N)
      L[query] = (m[i] + log2f(l[i])) * LN2;
#pragma unroll
    for (int n = 0; n < TD; n += 4)
      store4(O, O, N - block_query, d, thread_row + 4 * i,
             4 * lane_col + 8 * n, &o[i][n], 1 / l[i], 0);
  }
}
