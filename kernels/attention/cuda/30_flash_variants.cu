// The variants of attention in flash attention with register tiles.
//
// Idea: three places change, the rest stays. (1) The loop over tiles
// of keys begins at the first key that a query of the block sees, and
// ends after the last. A sliding window thus loads only its own tiles.
// (2) Several heads of queries may read the same head of K and V
// (grouped-query attention). (3) A score is capped by tanh, gets a
// bias or is hidden before the softmax. The queries may be fewer or
// more than the keys: the last query is aligned to the last key.
// What limits it: the FP32 multiply-adds, as without variants. A mask
// adds a load for each pair, tanh two slow instructions.
//
// Launch: grid (ceil(N / Br), B*H), block 32 lanes for each 4 * TM
// rows of Br, shared memory 4 * ((Br + Bc) * (DP + 4) + Bc * DP +
// Br * (Bc + 8)) bytes. Br, Bc, TM, DP and MASK (see variants.cuh) are
// defines. DP is a multiple of 32, d or more.

#include "../../cuda/async.cuh"
#include "../../cuda/gemm.cuh"
#include "attention.cuh"
#include "variants.cuh"

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
__launch_bounds__(THREADS, RESIDENT) flash_variants(
    const float* __restrict__ Q,  // [B*H, N, d]
    const float* __restrict__ K,  // [B*H / sharing, M, d]
    const float* __restrict__ V,  // [B*H / sharing, M, d]
#if MASK == 1
    const unsigned char* __restrict__ mask,  // [N, M]
#elif MASK == 2
    const float* __restrict__ mask,  // [N, M]
#endif
    float* __restrict__ O,  // [B*H, N, d]
    int N, int M, int d, int sharing, float scale, int causal,
    int window, float cap) {
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
  size_t kv_head = (size_t)shared_head(blockIdx.y, sharing) * M * d;
  K += kv_head, V += kv_head;
  Keys keys = {N, M, causal, window};

  // The weights are computed as powers of 2. Q contains all factors,
  // or those before the tanh.
  float factor = cap ? scale / cap : scale * LOG2E;
  for (int i = threadIdx.x; i < Br * (DP / 4); i += THREADS) {
    int row = i / (DP / 4), dim = i % (DP / 4) * 4;
    float4 q = load4(Q, N - block_query, d, row, dim);
    q.x *= factor, q.y *= factor, q.z *= factor, q.w *= factor;
    *(float4*)&tile_q[row][dim] = q;
  }

  float o[TM][TD] = {}, l[TM] = {}, m[TM];
#pragma unroll
  for (int i = 0; i < TM; ++i) m[i] = -INFINITE;
  // Only tiles with a key that some query of the block sees.
  int key_begin = keys.begin(block_query) / Bc * Bc;
  int key_end = keys.end(min(block_query + Br, N) - 1);
  load_tile<DP + 4>(tile_k[0], K + (size_t)key_begin * d,
                    M - key_begin, d);
#pragma unroll 1
  for (int key_tile = key_begin; key_tile < key_end; key_tile += Bc) {
    wait_groups<0>();
    __syncthreads();  // K is loaded; all have used the old V
    load_tile<DP>(tile_v[0], V + (size_t)key_tile * d, M - key_tile, d);

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
    if (cap) {
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int n = 0; n < TN; ++n)
          s[i][n] = cap * LOG2E * tanh_(s[i][n]);
    }
    // Some keys of the tile may be hidden from some queries.
    if (MASK || key_tile + Bc > keys.end(block_query) ||
        key_tile < keys.begin(block_query + Br - 1)) {
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        int query = block_query + thread_row + 4 * i;
        int begin = keys.begin(query), end = keys.end(query);
#pragma unroll
        for (int n = 0; n < TN; ++n) {
          int key = key_tile + lane_col + 8 * n;
          if (key < begin || key >= end) s[i][n] = -INFINITE;
#if MASK
          else if (query < N)
            s[i][n] = masked(s[i][n], mask[(size_t)query * M + key]);
#endif
        }
      }
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
                        M - key_tile - Bc, d);
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
    // A query that sees no key has l = 0 and the result 0.
    float inverse = l[i] == 0 ? 0.0f : 1 / l[i];
#pragma unroll
    for (int n = 0; n < TD; n += 4)
      store4(O, O, N - block_query, d, thread_row + 4 * i,
             4 * lane_col + 8 * n, &o[i][n], inverse, 0);
  }
}
