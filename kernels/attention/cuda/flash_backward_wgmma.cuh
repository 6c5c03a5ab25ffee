// The steps of one warpgroup of flash attention backward by wgmma. A
// warpgroup owns 64 rows: queries in one kernel, keys in the other.
// Tiles of 64 rows pass by.
//
// wgmma computes 64 x 64 sums. Warp w has rows 16 w to 16 w + 15. Of
// each 8 columns, lane l has four sums: columns 2 (l % 4) and the next
// of row l / 4, then the same columns 8 rows below.

#include "../../cuda/hopper.cuh"
#include "attention.cuh"
#include "halves.cuh"

constexpr int ROWS = 64;  // of a tile that passes, and of a warpgroup
constexpr int DP = 64;    // columns of a tile: d padded
constexpr int TILE = ROWS * DP;    // elements
constexpr int CONSUMERS = 2;           // warpgroups
constexpr int OWN = CONSUMERS * ROWS;  // rows of a block
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int ARRIVALS = 128 * CONSUMERS;  // threads that read a stage
constexpr int FOR_PRODUCER = 24, FOR_CONSUMER = 240;  // registers

typedef float Sums[DP / 8][4];        // a lane's part of 64 x 64
typedef unsigned Factor[ROWS / 16][4];  // the same, in 16 bits

// Begins to copy 64 rows of a head to shared memory. Columns from d
// on and rows from N on become zeros.
__device__ inline void load_rows(Half* tile, const TensorMap* map,
                                 int row, int head, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(shared_address(tile)),
      "l"(map), "r"(0), "r"(row), "r"(head), "r"(shared_address(barrier))
      : "memory");
}

// s = a [64, 16] x b [16, 64], plus s if `add` is not 0. Rows of both
// factors in shared memory are along the sum.
__device__ inline void multiply_scores(Sums& s, unsigned long long a,
                                       unsigned long long b, int add) {
  asm volatile(
      "{\n.reg .pred add;\n"
      "setp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." AB_TYPE
      "." AB_TYPE " "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, add, 1, 1, 0, 0;\n}"
      : SUMS_32(s, 0)
      : "l"(a), "l"(b), "r"(add));
}

// sums = left [64, 16] x right [16, 64], plus sums if `add` is not 0.
// `left` is in registers. Rows of `right` are along its columns.
__device__ inline void multiply(Sums& sums, const unsigned (&left)[4],
                                unsigned long long right, int add) {
  asm volatile(
      "{\n.reg .pred add;\n"
      "setp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." AB_TYPE
      "." AB_TYPE " "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, add, 1, 1, 1;\n}"
      : SUMS_32(sums, 0)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]),
        "l"(right), "r"(add));
}

// The compiler moves no calculation with these registers across such a
// line. They must not change between the fence of the products and
// their end.
__device__ inline void pin(float& x) { asm volatile("" : "+f"(x)); }
__device__ inline void pin(unsigned& x) { asm volatile("" : "+r"(x)); }
template <typename T, int N>
__device__ inline void pin(T (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) pin(x[i]);
}

// Waits until at most PENDING groups are incomplete. Then these sums
// may be used.
template <int PENDING>
__device__ inline void wait_sums(Sums& sums) {
  wait_products<PENDING>();
  pin(sums);
}

// Begins s = own x passing^T.
__device__ inline void begin_scores(Sums& s, const Half* own,
                                    const Half* passing) {
  begin_products();
#pragma unroll
  for (int k = 0; k < DP / 16; ++k)
    multiply_scores(s, descriptor(own + k * 16, 0),
                    descriptor(passing + k * 16, 0), k > 0);
  close_products();
}

// Begins sums = left x passing, plus sums if `add` is not 0.
__device__ inline void begin_sums(Sums& sums, Factor& left,
                                  const Half* passing, int add) {
  pin(sums), pin(left);
  begin_products();
#pragma unroll
  for (int k = 0; k < ROWS / 16; ++k)
    multiply(sums, left[k], descriptor(passing + k * 16 * DP, 0),
             k > 0 || add);
  close_products();
}

// Rounds s to 16 bits: the left factor of a product.
__device__ inline void round_sums(Factor& left, const Sums& s) {
#pragma unroll
  for (int k = 0; k < ROWS / 16; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float* both = &s[2 * k + e / 2][e % 2 * 2];
      left[k][e] = pair(both[0], both[1]);
    }
}

// Stores the warp's rows of Y, times `factor`. Y has `rows_left` rows
// from the warp's first one on, of d elements each. d is even.
__device__ inline void store_rows(Half* Y, const Sums& sums,
                                  int rows_left, int d, float factor) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int lower = 0; lower < 2; ++lower) {
    int row = lower * 8 + lane / 4;
    if (row >= rows_left) break;
#pragma unroll
    for (int n = 0; n < DP / 8; ++n) {
      int col = n * 8 + lane % 4 * 2;
      if (col < d)
        *(unsigned*)&Y[(size_t)row * d + col] =
            pair(sums[n][2 * lower] * factor,
                 sums[n][2 * lower + 1] * factor);
    }
  }
}

// The ring of tiles that pass. A stage has two barriers: `full` ends a
// phase when the copies have arrived, `empty` when all consumers have
// read the stage.
struct Ring {
  Barrier *full, *empty;  // [STAGES]
  int stage = 0, parity = 0;

  __device__ inline Ring(Barrier* barriers, int producers)
      : full(barriers), empty(barriers + STAGES) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < STAGES; ++i) {
        init_barrier(full + i, producers);
        init_barrier(empty + i, ARRIVALS);
      }
      init_barrier(own(), 1);
      publish_barriers();
    }
    __syncthreads();
  }

  // The barrier of the block's own tiles.
  __device__ inline Barrier* own() { return full + 2 * STAGES; }

  __device__ inline void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }

  // The calling thread has read a stage.
  __device__ inline void release(int read) { arrive(empty + read); }
};
