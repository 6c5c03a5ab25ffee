// Attention of few queries over many keys in one launch. Each warp has a
// ring of tiles that the copy engine (TMA) fills. Q, K, V and O are
// 16-bit numbers, sums are FP32.
//
// Idea: K and V are read once, so their bytes under way decide the time.
// As in 32, a block owns a part of the keys. Here the copy engine loads
// them: a warp has STAGES stages, each with TILE keys and their values.
// Lane 0 refills a stage when the warp has used it. No warp waits for
// another one before the end. The rows that share keys are the 16 rows
// of mma.sync: the heads of a group, and their queries. The warps of a
// block then merge their maxima m, sums l and sums o in shared memory.
// Each block stores those of its part and increments a counter of the
// head of keys. The block that completes the count merges the parts,
// and resets the counter for the next launch. The counters begin as
// zeros.
// What limits it: HBM. For few keys the launch and the merge.
//
// Launch: grid (parts, ceil(rows / ROWS), B*kv_heads), block WARPS * 32.
// Dynamic shared memory: 4 * WARPS * STAGES * TILE * DP bytes of tiles,
// WARPS * STAGES barriers, and m and l of 16 rows of each warp. BF16,
// MASK, ROWS, WARPS, TILE, STAGES and DP are defines. ROWS is 1 to 16,
// TILE a multiple of 16, STAGES 2 or more. DP is 64 or 128, d or more.
// d is a multiple of 8. PART is a multiple of TILE.

#include "attention.cuh"
#include "../../cuda/hopper.cuh"
#include "../../cuda/mma.cuh"
#include "halves.cuh"
#include "variants.cuh"

constexpr int THREADS = 32 * WARPS;
constexpr int BOX = 64;              // columns of a box: rows of 128 bytes
constexpr int HALF_STAGE = TILE * DP;  // elements of a tile of K or V
constexpr int RING = 2 * STAGES * HALF_STAGE;  // elements of a warp
constexpr int BANDS = ROWS > 8 ? 2 : 1;  // of 8 rows
constexpr int PITCH = DP + 8;  // of o: 4 rows of 8 floats fill all banks

typedef float Scores[TILE / 8][4];  // of S, a lane's part
typedef float Values[DP / 8][4];    // of O
typedef float Rows[2];              // a number for each row of a lane

// -- the ring -----------------------------------------------------
// Begins to copy a box of rows of one head of X to shared memory.
__device__ inline void load_head_box(void* to, const TensorMap* X,
                                     int col, int row, int head,
                                     Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(shared_address((const void*)to)),
      "l"(X), "r"(col), "r"(row), "r"(head),
      "r"(shared_address(barrier))
      : "memory");
}

// Begins to fill a stage with the keys from `key` on and their values.
// Rows outside of the head become zeros.
__device__ inline void fill_stage(Half* stage, const TensorMap* K,
                                  const TensorMap* V, int key, int head,
                                  Barrier* full) {
  arrive_expecting(full, 2 * 2 * HALF_STAGE);
#pragma unroll
  for (int col = 0; col < DP; col += BOX) {
    load_head_box(stage + col * TILE, K, col, key, head, full);
    load_head_box(stage + HALF_STAGE + col * TILE, V, col, key, head,
                  full);
  }
}

// Returns the address of element (row, col) of a tile. A tile [TILE, DP]
// is DP / 64 boxes [TILE, 64], one after the other, swizzled by the copy
// engine.
__device__ inline const Half* at(const Half* tile, int row, int col) {
  return tile + col / BOX * (TILE * BOX) + swizzled<BOX>(row, col % BOX);
}

// -- products -----------------------------------------------------
// Loads the block's rows of Q as left factors of mma.sync. Rows and
// columns outside of Q are zero.
__device__ inline void load_queries(unsigned (&q)[DP / 16][4],
                                    const Half* Q, int rows, int d) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < DP / 16; ++k)
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      int row = lane / 4 + n % 2 * 8;
      int col = k * 16 + n / 2 * 8 + lane % 4 * 2;
      bool inside = row < rows && col < d;
      q[k][n] = inside ? *(const unsigned*)&Q[row * d + col] : 0;
    }
}

// S = Q K^T of a tile of keys.
__device__ inline void compute_scores(Scores& s,
                                      const unsigned (&q)[DP / 16][4],
                                      const Half* tile_k) {
  int row = threadIdx.x % 32 / 16 * 8 + threadIdx.x % 8;
  int col = threadIdx.x % 16 / 8 * 8;
#pragma unroll
  for (int k = 0; k < DP / 16; ++k)
#pragma unroll
    for (int n = 0; n < TILE / 16; ++n) {
      unsigned keys[4];
      load_matrices(keys, at(tile_k, n * 16 + row, k * 16 + col));
      multiply_add(s[2 * n], q[k], keys[0], keys[1]);
      multiply_add(s[2 * n + 1], q[k], keys[2], keys[3]);
    }
}

// O += P V. P is rounded to the type of V.
__device__ inline void add_values(Values& o, const Scores& p,
                                  const Half* tile_v) {
  int row = threadIdx.x % 16, col = threadIdx.x % 32 / 16 * 8;
#pragma unroll
  for (int k = 0; k < TILE / 16; ++k) {
    const float* left = p[2 * k];
    const float* right = p[2 * k + 1];
    unsigned weights[4] = {pair(left[0], left[1]), pair(left[2], left[3]),
                           pair(right[0], right[1]),
                           pair(right[2], right[3])};
#pragma unroll
    for (int n = 0; n < DP / 16; ++n) {
      unsigned v[4];
      load_transposed(v, at(tile_v, k * 16 + row, n * 16 + col));
      multiply_add(o[2 * n], weights, v[0], v[1]);
      multiply_add(o[2 * n + 1], weights, v[2], v[3]);
    }
  }
}

// -- softmax ------------------------------------------------------
// Calls change(score, row, key) for each of the lane's scores, the
// first of the warp's being that of (0, key).
template <class Change>
__device__ inline void each_score(Scores& s, int key, Change change) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < TILE / 8; ++n)
#pragma unroll
    for (int e = 0; e < 2 * BANDS; ++e)
      change(s[n][e], lane / 4 + e / 2 * 8,
             key + n * 8 + lane % 4 * 2 + e % 2);
}

// Replaces scores, exponents of 2, by weights. Updates the maxima m and
// sums l of the rows, and rescales l and o.
__device__ inline void compute_weights(Scores& s, Rows& m, Rows& l,
                                       Values& o) {
#pragma unroll
  for (int band = 0; band < BANDS; ++band) {
    float top = m[band];
#pragma unroll
    for (int n = 0; n < TILE / 8; ++n)
      top = fmaxf(top, fmaxf(s[n][2 * band], s[n][2 * band + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    // If all scores so far are -infinity, any finite base gives zeros.
    float base = top == -INFINITE ? 0.0f : top;
    float rescale = exp2_(m[band] - base);
    m[band] = top, l[band] *= rescale;
#pragma unroll
    for (int n = 0; n < DP / 8; ++n)
      o[n][2 * band] *= rescale, o[n][2 * band + 1] *= rescale;
#pragma unroll
    for (int n = 0; n < TILE / 8; ++n)
#pragma unroll
      for (int e = 2 * band; e < 2 * band + 2; ++e) {
        s[n][e] = exp2_(s[n][e] - base);
        l[band] += s[n][e];
      }
  }
}

// -- merging ------------------------------------------------------
// Sums with maxima of their own become sums with the largest: `count`
// maxima and sums m and l, `step` numbers apart, and sums o, `pitch`
// apart. Returns m and l; adds the sums o to `sum`.
__device__ inline float2 merge(const float2* m_l, int step,
                               const float* o, int pitch, int count,
                               float& sum) {
  float m = -INFINITE, l = 0;
#pragma unroll 16
  for (int i = 0; i < count; ++i) m = fmaxf(m, m_l[i * step].x);
  float base = m == -INFINITE ? 0.0f : m;
#pragma unroll 16
  for (int i = 0; i < count; ++i) {
    float rescale = exp2_(m_l[i * step].x - base);
    l += rescale * m_l[i * step].y;
    sum += rescale * o[(size_t)i * pitch];
  }
  return {m, l};
}

// Returns whether this block is the last of `count` that arrive at the
// counter. What the others wrote before is then visible to it.
__device__ inline bool arrives_last(unsigned* counter, int count) {
  __threadfence();
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1) == count - 1;
    if (last) *counter = 0;
  }
  last = __syncthreads_or(last);
  __threadfence();
  return last;
}

extern "C" __global__ void __launch_bounds__(THREADS) decode_ring(
    const Half* __restrict__ Q,  // [B*kv_heads, rows, d]
    // [B*kv_heads, M, d], boxes [TILE, 64]
    const __grid_constant__ TensorMap K,
    const __grid_constant__ TensorMap V,
#if MASK == 1
    const unsigned char* __restrict__ mask,  // [N, M]
#elif MASK == 2
    const Half* __restrict__ mask,  // [N, M]
#endif
    float2* part_ml,      // [B*kv_heads, rows, parts]: m and l
    float* part_o,        // [B*kv_heads, rows, parts, d]
    unsigned* counters,   // [B*kv_heads, row blocks]
    Half* __restrict__ O,  // [B*kv_heads, rows, d]
    int N, int M, int d, int rows, float scale, int causal, int window,
    float cap, int PART) {
  extern __shared__ __align__(1024) char shared[];
  auto rings = (Half*)shared;  // [WARPS, STAGES, 2, TILE, DP]
  auto full = (Barrier*)(rings + WARPS * RING);    // [WARPS, STAGES]
  auto warp_ml = (float2*)(full + WARPS * STAGES);  // [WARPS, 16]
  int lane = threadIdx.x % 32;
  int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  int head = blockIdx.z, first_row = blockIdx.y * ROWS;
  int block_rows = min(ROWS, rows - first_row);
  Half* ring = rings + warp * RING;
  full += warp * STAGES;

  // The block's keys. Its warps take tiles in turn.
  Keys keys = {N, M, causal, window};
  int first = keys.begin(0) + blockIdx.x * PART;
  int end = min(first + PART, keys.end(N - 1));
  first += warp * TILE;
  constexpr int STEP = WARPS * TILE;
  if (lane == 0) {
    for (int i = 0; i < STAGES; ++i) init_barrier(full + i, 1);
    publish_barriers();
    for (int i = 0; i < STAGES; ++i)
      if (first + i * STEP < end)
        fill_stage(ring + i * 2 * HALF_STAGE, &K, &V, first + i * STEP,
                   head, full + i);
  }
  __syncwarp();

  size_t place = (size_t)head * rows + first_row;  // of the first row
  unsigned q[DP / 16][4];
  load_queries(q, Q + place * d, block_rows, d);
  // Scores become exponents of 2, or arguments of tanh.
  float factor = cap ? scale / cap : scale * LOG2E;
  Values o = {};
  Rows m = {-INFINITE, -INFINITE}, l = {};
  int stage = 0, parity = 0;
#pragma unroll 1
  for (int key = first; key < end; key += STEP) {
    const Half* tile_k = ring + stage * 2 * HALF_STAGE;
    wait(full + stage, parity);
    Scores s = {};
    compute_scores(s, q, tile_k);
    each_score(s, 0, [=](float& score, int, int) {
      score *= factor;
      if (cap) score = cap * LOG2E * tanh_(score);
    });
    // Some keys of the tile may be hidden from some rows.
    if (MASK || key < keys.begin(N - 1) || key + TILE > keys.end(0))
      each_score(s, key, [=](float& score, int row, int key) {
        int query = (first_row + row) % N;
        if (key < keys.begin(query) || key >= keys.end(query))
          score = -INFINITE;
#if MASK
        else if (row < block_rows)
          score = masked(score, mask[(size_t)query * M + key]);
#endif
      });
    compute_weights(s, m, l, o);
    add_values(o, s, tile_k + HALF_STAGE);
    __syncwarp();  // all lanes have used the stage
    int next = key + STAGES * STEP;
    if (lane == 0 && next < end)
      fill_stage(ring + stage * 2 * HALF_STAGE, &K, &V, next, head,
                 full + stage);
    stage = stage + 1 < STAGES ? stage + 1 : 0;
    parity ^= stage == 0;
  }

  // The warp's sums replace its ring.
  auto warp_o = (float*)ring;  // [ROWS, PITCH]
#pragma unroll
  for (int band = 0; band < BANDS; ++band) {
    int row = lane / 4 + band * 8;
    l[band] += __shfl_xor_sync(~0u, l[band], 1);
    l[band] += __shfl_xor_sync(~0u, l[band], 2);
    if (row >= block_rows) continue;
    if (lane % 4 == 0) warp_ml[warp * 16 + row] = {m[band], l[band]};
#pragma unroll
    for (int n = 0; n < DP / 8; ++n)
      *(float2*)&warp_o[row * PITCH + n * 8 + lane % 4 * 2] = {
          o[n][2 * band], o[n][2 * band + 1]};
  }
  __syncthreads();

  // Merges the warps. If the block has all keys, this is the result.
  int parts = gridDim.x;
  for (int i = threadIdx.x; i < block_rows * DP; i += THREADS) {
    int row = i / DP, dim = i % DP;
    if (dim >= d) continue;
    float sum = 0;
    float2 m_l = merge(warp_ml + row, 16,
                       (float*)rings + row * PITCH + dim, RING / 2, WARPS,
                       sum);
    size_t part = (place + row) * parts + blockIdx.x;
    // A query that sees no key has l = 0 and the result 0.
    if (parts == 1)
      O[(place + row) * d + dim] =
          pair(m_l.y == 0 ? 0.0f : sum / m_l.y, 0.0f);
    else
      part_o[part * d + dim] = sum;
    if (parts > 1 && dim == 0) part_ml[part] = m_l;
  }
  if (parts == 1) return;

  // Merges the parts.
  int of_rows = blockIdx.z * gridDim.y + blockIdx.y;
  if (!arrives_last(counters + of_rows, parts)) return;
  for (int i = threadIdx.x; i < block_rows * d; i += THREADS) {
    int row = i / d, dim = i % d;
    size_t part = (place + row) * parts;
    float sum = 0;
    float2 m_l = merge(part_ml + part, 1, part_o + part * d + dim, d,
                       parts, sum);
    O[(place + row) * d + dim] =
        pair(m_l.y == 0 ? 0.0f : sum / m_l.y, 0.0f);
  }
}
