// Attention of few queries over many keys, as in the decoding of a
// language model (Flash-Decoding): the keys are split into parts.
//
// Idea: one query of a sequence has one row of scores. A block for each
// row would leave most of the GPU idle, and each would read all keys.
// Here a block owns PART keys of a cache of keys and values. It reads
// them once for all rows that share them: the queries of a sequence,
// and its heads that share one head of keys. It computes the softmax of
// its part alone and stores, for each row, the maximum m, the sum l of
// exponentials, and o, the sum of the values with the weights
// exp(score - m). The next kernel merges the parts.
// What limits it: the bytes of K and V. A row does only two
// multiply-adds for each element that is loaded.
//
// Launch: grid (parts, ceil(rows / ROWS), B*kv_heads), block THREADS,
// shared memory 4 * ROWS * (PART + THREADS / 32 * DP) bytes. BYTES,
// BF16, MASK, PART, ROWS, THREADS, BATCH and DP are defines. DP is a
// power of 2, 8 * WIDE or more, d or more. PART is a multiple of
// THREADS / 8 * BATCH.

#include "decode.cuh"

constexpr int LANES = 8;                   // that share a key
constexpr int PIECES = DP / WIDE / LANES;  // 16 bytes each, of a lane
constexpr int ACROSS = DP / WIDE;  // threads that share a row of V
constexpr int WARPS = THREADS / 32;

// Returns the sum over the lanes whose numbers differ in the bits from
// `first` up to `end`, both powers of 2.
__device__ inline float lanes_sum(float x, int first, int end) {
#pragma unroll
  for (int lane_mask = first; lane_mask < end; lane_mask *= 2)
    x += __shfl_xor_sync(~0u, x, lane_mask);
  return x;
}

extern "C" __global__ void __launch_bounds__(THREADS) decode_parts(
    const Element* __restrict__ Q,  // [B*kv_heads, rows, d]
    const Element* __restrict__ K,  // [B*kv_heads, M, d]
    const Element* __restrict__ V,  // [B*kv_heads, M, d]
#if MASK == 1
    const unsigned char* __restrict__ mask,  // [N, M]
#elif MASK == 2
    const Element* __restrict__ mask,  // [N, M]
#endif
    float* __restrict__ part_m,  // [B*kv_heads, rows, parts]
    float* __restrict__ part_l,  // [B*kv_heads, rows, parts]
    float* __restrict__ part_o,  // [B*kv_heads, rows, parts, d]
    int N, int M, int d, int rows, float scale, int causal, int window,
    float cap) {
  extern __shared__ __align__(16) float shared[];
  auto tile_p = (float (*)[PART])shared;            // [ROWS]
  auto sums = (float (*)[ROWS][DP])&tile_p[ROWS];  // [WARPS]
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Keys keys = {N, M, causal, window};
  int key_part = keys.begin(0) + blockIdx.x * PART;  // its first key
  int first_row = blockIdx.y * ROWS;
  Q += ((size_t)blockIdx.z * rows + first_row) * d;
  K += ((size_t)blockIdx.z * M + key_part) * d;
  V += ((size_t)blockIdx.z * M + key_part) * d;

  // The weights are computed as powers of 2. Q contains all factors,
  // or those before the tanh.
  float factor = cap ? scale / cap : scale * LOG2E;
  float q[ROWS][PIECES][WIDE];
  int lane_col = threadIdx.x % LANES * WIDE;
#pragma unroll
  for (int row = 0; row < ROWS; ++row)
#pragma unroll
    for (int n = 0; n < PIECES; ++n) {
      bool inside = first_row + row < rows;
      int col = lane_col + n * LANES * WIDE;
      unpack(q[row][n], load16(Q + (size_t)row * d, inside ? col : d, d));
#pragma unroll
      for (int e = 0; e < WIDE; ++e) q[row][n][e] *= factor;
    }

  // Scores: LANES neighbouring lanes share a key. Each begins all
  // loads of BATCH keys before it uses the first.
  constexpr int STEP = THREADS / LANES;  // keys at a time
#pragma unroll 1
  for (int first = threadIdx.x / LANES; first < PART;
       first += STEP * BATCH) {
    uint4 k[BATCH][PIECES];
#pragma unroll
    for (int i = 0; i < BATCH; ++i)
#pragma unroll
      for (int n = 0; n < PIECES; ++n) {
        int key = first + i * STEP, col = lane_col + n * LANES * WIDE;
        k[i][n] = load16(K + (size_t)key * d,
                         key_part + key < M ? col : d, d);
      }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      float s[ROWS] = {};
#pragma unroll
      for (int n = 0; n < PIECES; ++n) {
        float values[WIDE];
        unpack(values, k[i][n]);
#pragma unroll
        for (int row = 0; row < ROWS; ++row)
#pragma unroll
          for (int e = 0; e < WIDE; ++e)
            s[row] += q[row][n][e] * values[e];
      }
#pragma unroll
      for (int row = 0; row < ROWS; ++row) {
        s[row] = lanes_sum(s[row], 1, LANES);
        if (threadIdx.x % LANES == row % LANES)
          tile_p[row][first + i * STEP] = s[row];
      }
    }
  }
  __syncthreads();

  // The softmax of this part: a warp for each row.
  int block_rows = min(ROWS, rows - first_row);
  for (int row = warp; row < block_rows; row += WARPS) {
    int query = (first_row + row) % N;
    int begin = keys.begin(query), end = keys.end(query);
    float m = -INFINITE, l = 0;
    for (int n = lane; n < PART; n += 32) {
      int key = key_part + n;
      float s = tile_p[row][n];
      if (cap) s = cap * LOG2E * tanh_(s);
      if (key < begin || key >= end) s = -INFINITE;
#if MASK
      else s = masked(s, mask[(size_t)query * M + key]);
#endif
      tile_p[row][n] = s;
      m = fmaxf(m, s);
    }
#pragma unroll
    for (int lane_mask = 16; lane_mask; lane_mask /= 2)
      m = fmaxf(m, __shfl_xor_sync(~0u, m, lane_mask));
    // If all scores are -infinity, any finite base gives zeros.
    float base = m == -INFINITE ? 0.0f : m;
    for (int n = lane; n < PART; n += 32) {
      float p = exp2_(tile_p[row][n] - base);
      tile_p[row][n] = p;
      l += p;
    }
    l = lanes_sum(l, 1, 32);
    if (lane == 0) {
      size_t place = (size_t)blockIdx.z * rows + first_row + row;
      part_m[place * gridDim.x + blockIdx.x] = m;
      part_l[place * gridDim.x + blockIdx.x] = l;
    }
  }
  __syncthreads();

  // Values: ACROSS threads share a row of V.
  constexpr int GROUPS = THREADS / ACROSS;  // keys at a time
  float o[ROWS][WIDE] = {};
  int col = threadIdx.x % ACROSS * WIDE;
#pragma unroll 1
  for (int first = threadIdx.x / ACROSS; first < PART;
       first += GROUPS * BATCH) {
    uint4 v[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      int key = first + i * GROUPS;
      bool inside = key < PART && key_part + key < M;
      v[i] = load16(V + (size_t)key * d, inside ? col : d, d);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      int key = first + i * GROUPS;
      if (key >= PART) break;
      float values[WIDE];
      unpack(values, v[i]);
#pragma unroll
      for (int row = 0; row < ROWS; ++row)
#pragma unroll
        for (int e = 0; e < WIDE; ++e)
          o[row][e] += tile_p[row][key] * values[e];
    }
  }
#pragma unroll
  for (int row = 0; row < ROWS; ++row)
#pragma unroll
    for (int e = 0; e < WIDE; ++e) {
      o[row][e] = lanes_sum(o[row][e], ACROSS, 32);
      if (lane < ACROSS) sums[warp][row][col + e] = o[row][e];
    }
  __syncthreads();
  for (int i = threadIdx.x; i < ROWS * DP; i += THREADS) {
    int row = i / DP, dim = i % DP;
    if (row >= block_rows || dim >= d) continue;
    float sum = 0;
    for (int n = 0; n < WARPS; ++n) sum += sums[n][row][dim];
    size_t place = (size_t)blockIdx.z * rows + first_row + row;
    part_o[(place * gridDim.x + blockIdx.x) * d + dim] = sum;
  }
}
