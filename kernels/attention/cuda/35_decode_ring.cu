// Attention of few queries over many keys in one launch. Each warp has a
// ring of tiles that the copy engine (TMA) fills. Q, K, V and O are
// 16-bit numbers, sums are FP32.
//
// Idea: K and V are read once, so the bytes under way decide the time.
// The copy engine loads them: a warp has STAGES stages, each with TILE
// keys and their values. Lane 0 refills a stage when the warp has used
// it. No warp waits for another one while keys are left. The rows that
// share keys are the 16 rows of mma.sync: the heads of a group, and
// their queries.
// The keys of all heads, one head after the other, are cut into equal
// shares, one for each block. So every multiprocessor has equal work,
// and a share may end within a head. The ring goes on at the next head.
// At the end of a head or of its share, a block merges the maxima m,
// sums l and sums o of its warps. If it has only a part of the head's
// keys, it stores them and increments the head's counter. The block that
// completes the count merges the parts, and resets the counter for the
// next launch. The counters begin as zeros.
// What limits it: HBM. For few keys the launch and the merge.
//
// Launch: grid (blocks), block WARPS * 32. Dynamic shared memory: 4 *
// WARPS * STAGES * TILE * DP bytes of tiles, sums o of all warps, WARPS
// * STAGES barriers, and m and l of 16 rows of each warp. BF16, MASK,
// ROWS, WARPS, TILE, STAGES and DP are defines. ROWS is 1 to 16, TILE a
// multiple of 16. DP is 64 or 128, d or more. d is a multiple of 8.

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
constexpr int ROUND = WARPS * TILE;  // keys, a tile for each warp
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

// Returns a weighted sum of values divided by the sum of weights. A
// query that sees no key has l = 0 and the result 0.
__device__ inline Half divided(float sum, float l) {
  return pair(l == 0 ? 0.0f : sum / l, 0.0f);
}

// Stores the sums of a warp: o [ROWS, PITCH], m and l [16].
__device__ inline void store_sums(float* to, float2* m_l, const Rows& m,
                                  const Rows& l, const Values& o,
                                  int block_rows) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int band = 0; band < BANDS; ++band) {
    int row = lane / 4 + band * 8;
    float sum = l[band];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (row >= block_rows) continue;
    if (lane % 4 == 0) m_l[row] = {m[band], sum};
#pragma unroll
    for (int n = 0; n < DP / 8; ++n)
      *(float2*)&to[row * PITCH + n * 8 + lane % 4 * 2] = {
          o[n][2 * band], o[n][2 * band + 1]};
  }
}

// Rounds 0 .. total - 1, in `blocks` shares that differ by 1 at most.
struct Shares {
  int total, blocks;

  // Returns the first round of a block.
  __device__ int begin(int block) const {
    return (long long)total * block / blocks;
  }

  // Returns the block that has a round.
  __device__ int block_of(int round) const {
    return ((long long)(round + 1) * blocks - 1) / total;
  }
};

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
    unsigned* counters,   // [B*kv_heads, row_blocks]
    Half* __restrict__ O,  // [B*kv_heads, rows, d]
    int N, int M, int d, int rows, float scale, int causal, int window,
    float cap, int heads, int row_blocks, int parts) {
  extern __shared__ __align__(1024) char shared[];
  auto rings = (Half*)shared;  // [WARPS, STAGES, 2, TILE, DP]
  auto sums = (float*)(rings + WARPS * RING);  // [WARPS, ROWS, PITCH]
  auto full = (Barrier*)(sums + WARPS * ROWS * PITCH);  // [WARPS, STAGES]
  auto warp_ml = (float2*)(full + WARPS * STAGES);      // [WARPS, 16]
  int lane = threadIdx.x % 32;
  int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  Half* ring = rings + warp * RING;
  full += warp * STAGES;

  // An item is a head of keys with a block of rows. It has rounds of
  // keys, and the block has rounds next .. last - 1 of all items.
  Keys keys = {N, M, causal, window};
  int first_key = keys.begin(0) + warp * TILE;  // of a round
  int seen = keys.end(N - 1) - keys.begin(0);
  int rounds = max(1, (seen + ROUND - 1) / ROUND);
  Shares shares = {heads * row_blocks * rounds, (int)gridDim.x};
  int next = shares.begin(blockIdx.x);
  int last = shares.begin(blockIdx.x + 1);
  int item = next / rounds, round = next % rounds;
  int fill_item = item, fill_round = round, to_fill = last - next;
  auto fill = [&](int stage) {
    fill_stage(ring + stage * 2 * HALF_STAGE, &K, &V,
               first_key + fill_round * ROUND, fill_item / row_blocks,
               full + stage);
    if (++fill_round == rounds) fill_round = 0, ++fill_item;
    --to_fill;
  };
  if (lane == 0) {
    for (int i = 0; i < STAGES; ++i) init_barrier(full + i, 1);
    publish_barriers();
    for (int i = 0; i < STAGES && to_fill > 0; ++i) fill(i);
  }
  __syncwarp();

  // Scores become exponents of 2, or arguments of tanh.
  float factor = cap ? scale / cap : scale * LOG2E;
  int stage = 0, parity = 0;
#pragma unroll 1
  for (; next < last; ++item, round = 0) {
    int first_row = item % row_blocks * ROWS;
    int block_rows = min(ROWS, rows - first_row);
    size_t place = (size_t)(item / row_blocks) * rows + first_row;
    unsigned q[DP / 16][4];
    load_queries(q, Q + place * d, block_rows, d);
    Values o = {};
    Rows m = {-INFINITE, -INFINITE}, l = {};
    int first_round = round;
#pragma unroll 1
    for (; round < rounds && next < last; ++round, ++next) {
      const Half* tile_k = ring + stage * 2 * HALF_STAGE;
      int key = first_key + round * ROUND;
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
      if (lane == 0 && to_fill > 0) fill(stage);
      stage = stage + 1 < STAGES ? stage + 1 : 0;
      parity ^= stage == 0;
    }

    store_sums(sums + warp * ROWS * PITCH, warp_ml + warp * 16, m, l, o,
               block_rows);
    __syncthreads();
    // Merges the warps. If the block has all keys, this is the result.
    bool whole = first_round == 0 && round == rounds;
    int first_block = shares.block_of(item * rounds);
    int part = blockIdx.x - first_block;
    for (int i = threadIdx.x; i < block_rows * DP; i += THREADS) {
      int row = i / DP, dim = i % DP;
      if (dim >= d) continue;
      float sum = 0;
      float2 m_l = merge(warp_ml + row, 16, sums + row * PITCH + dim,
                         ROWS * PITCH, WARPS, sum);
      size_t to = (place + row) * parts + part;
      if (whole) O[(place + row) * d + dim] = divided(sum, m_l.y);
      if (!whole) part_o[to * d + dim] = sum;
      if (!whole && dim == 0) part_ml[to] = m_l;
    }
    if (whole) {
      __syncthreads();  // the sums may be overwritten
      continue;
    }
    // Merges the parts.
    int count = shares.block_of((item + 1) * rounds - 1) - first_block + 1;
    if (!arrives_last(counters + item, count)) continue;
    for (int i = threadIdx.x; i < block_rows * d; i += THREADS) {
      int row = i / d, dim = i % d;
      size_t from = (place + row) * parts;
      float sum = 0;
      float2 m_l = merge(part_ml + from, 1, part_o + from * d + dim, d,
                         count, sum);
      O[(place + row) * d + dim] = divided(sum, m_l.y);
    }
  }
}
