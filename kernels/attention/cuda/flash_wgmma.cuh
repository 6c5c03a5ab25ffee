// The steps of flash attention by a warpgroup: products by wgmma, and
// the softmax of its 64 rows between them.
//
// Lane l of warp w has rows 16 w + l / 4 and 8 below, and of each 8
// columns j the columns 2 (l % 4) and the next: s[j] are two scores of
// the upper row, then two of the lower row. `lower` is 0 or 1.

#include "../../cuda/hopper.cuh"
#include "halves.cuh"

constexpr int WM = 64;  // rows of a warpgroup
constexpr int BOX = 64;  // columns of a box: its rows have 128 bytes
constexpr int CONSUMERS = Br / WM;  // warpgroups that multiply
// Registers of a thread of the producer and of a consumer. Without
// them, 65,536 registers are shared equally.
constexpr int FOR_PRODUCER = CONSUMERS == 2 ? 40 : 32;
constexpr int FOR_CONSUMER =
    CONSUMERS == 2 ? 232 : CONSUMERS == 3 ? 160 : 112;
constexpr int TILE_Q = Br * DP, TILE_K = Bc * DP;  // elements
constexpr float FAR = 1 << 20;  // a large score, as a power of 2

typedef float Scores[Bc / 8][4];       // of S
typedef float Values[DP / 8][4];       // of O
typedef unsigned Weights[Bc / 16][4];  // of P: pairs of 16 bits
typedef float Rows[2];                 // a number for each row

// -- turns --------------------------------------------------------
// A consumer waits for its turn, begins products, and passes the turn
// on to the next consumer without waiting for it.
__device__ inline void wait_turn(int consumer) {
  asm volatile("bar.sync %0, 256;" ::"r"(5 + consumer) : "memory");
}

__device__ inline void pass_turn(int consumer) {
  int next = (consumer + 1) % CONSUMERS;
  asm volatile("bar.arrive %0, 256;" ::"r"(5 + next) : "memory");
}

// -- tiles --------------------------------------------------------
// A tile [rows, DP] is DP / 64 boxes [rows, 64], one after the other.
// Begins to copy a box of rows of one head of X [B*H, N, d].
__device__ inline void load_head_box(void* to, const TensorMap* X,
                                     int col, int row, int head,
                                     Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(shared_address(to)),
      "l"(X), "r"(col), "r"(row), "r"(head),
      "r"(shared_address(barrier))
      : "memory");
}

// Begins to copy a tile of X. Elements outside the head become zeros.
template <int ROWS>
__device__ inline void load_tile(Half* tile, const TensorMap* X,
                                 int row, int head, Barrier* full) {
  arrive_expecting(full, ROWS * DP * 2);
#pragma unroll
  for (int col = 0; col < DP; col += BOX)
    load_head_box(tile + col * ROWS, X, col, row, head, full);
}

// Changes the signs of the warpgroup's rows of Q, for a negative
// scale. The factor of the scores is positive then, so that the largest
// score remains the largest.
__device__ inline void negate_queries(Half* tile_q, int warpgroup) {
  for (int col = 0; col < DP; col += BOX) {
    auto pairs =
        (unsigned*)(tile_q + col * Br + warpgroup * WM * BOX);
    for (int i = threadIdx.x % 128; i < WM * BOX / 2; i += 128)
      pairs[i] ^= 0x80008000;
  }
  publish_writes();
  warpgroup_barrier(warpgroup);
}

// -- products -----------------------------------------------------
#define R0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define R1 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define R2 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define R3 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define R4 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define R5 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define R6 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define R7 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define R8 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define R9 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define R10 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define R11 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define LIST_32 R0 R1 R2 R3
#define LIST_40 LIST_32 R4
#define LIST_48 LIST_40 R5
#define LIST_56 LIST_48 R6
#define LIST_64 LIST_56 R7
#define LIST_80 LIST_64 R8 R9
#define LIST_88 LIST_80 R10
#define LIST_96 LIST_88 R11
#define SUMS_40(s, j) SUMS_32(s, j), SUMS_4(s, 8), SUMS_4(s, 9)
#define SUMS_48(s, j) SUMS_40(s, j), SUMS_4(s, 10), SUMS_4(s, 11)
#define SUMS_56(s, j) SUMS_48(s, j), SUMS_4(s, 12), SUMS_4(s, 13)
#define SUMS_64(s, j) SUMS_56(s, j), SUMS_4(s, 14), SUMS_4(s, 15)
#define SUMS_80(s, j) \
  SUMS_64(s, j), \
  SUMS_4(s, 16), SUMS_4(s, 17), SUMS_4(s, 18), SUMS_4(s, 19)
#define SUMS_88(s, j) SUMS_80(s, j), SUMS_4(s, 20), SUMS_4(s, 21)
#define SUMS_96(s, j) SUMS_88(s, j), SUMS_4(s, 22), SUMS_4(s, 23)

// s [64, COLS] = a [64, 16] x b [16, COLS], plus s if `add` is not 0.
// Rows of both factors in shared memory are along the sum.
#define MULTIPLY_SCORES(COLS, COUNT, A, B, ADD)                        \
  __device__ inline void multiply_scores(                              \
      float (&s)[COLS / 8][4], unsigned long long a,                   \
      unsigned long long b, int add) {                                 \
    asm volatile(                                                      \
        "{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD                  \
        ", 0;\nwgmma.mma_async.sync.aligned.m64n" #COLS                \
        "k16.f32." AB_TYPE "." AB_TYPE " {" LIST_##COUNT "}, %" #A     \
        ", %" #B ", add, 1, 1, 0, 0;\n}"                               \
        : SUMS_##COUNT(s, 0)                                           \
        : "l"(a), "l"(b), "r"(add));                                   \
  }
MULTIPLY_SCORES(64, 32, 32, 33, 34)
MULTIPLY_SCORES(80, 40, 40, 41, 42)
MULTIPLY_SCORES(96, 48, 48, 49, 50)
MULTIPLY_SCORES(112, 56, 56, 57, 58)
MULTIPLY_SCORES(128, 64, 64, 65, 66)
MULTIPLY_SCORES(160, 80, 80, 81, 82)
MULTIPLY_SCORES(176, 88, 88, 89, 90)
MULTIPLY_SCORES(192, 96, 96, 97, 98)

// s [64, COLS] += p [64, 16] x b [16, COLS]. p are fragments in
// registers. Rows of b are along its columns.
#define MULTIPLY_VALUES(COLS, COUNT, P0, P1, P2, P3, B)                \
  __device__ inline void multiply_values(float (&s)[COLS / 8][4],      \
                                         const unsigned (&p)[4],       \
                                         unsigned long long b) {       \
    asm volatile(                                                      \
        "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"                 \
        "wgmma.mma_async.sync.aligned.m64n" #COLS                      \
        "k16.f32." AB_TYPE "." AB_TYPE " {" LIST_##COUNT "}, {%" #P0   \
        ", %" #P1 ", %" #P2 ", %" #P3 "}, %" #B ", add, 1, 1, 1;\n}"   \
        : SUMS_##COUNT(s, 0)                                           \
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(b));         \
  }
MULTIPLY_VALUES(64, 32, 32, 33, 34, 35, 36)
MULTIPLY_VALUES(128, 64, 64, 65, 66, 67, 68)

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

// Begins S = Q K^T of the warpgroup's rows, one group of products.
__device__ inline void begin_scores(Scores& s, const Half* tile_q,
                                    const Half* tile_k,
                                    int warpgroup) {
  tile_q += warpgroup * WM * BOX;
  begin_products();
#pragma unroll
  for (int k = 0; k < DP; k += 16)
    multiply_scores(
        s, descriptor(tile_q + k / BOX * Br * BOX + k % BOX, 0),
        descriptor(tile_k + k / BOX * Bc * BOX + k % BOX, 0), k > 0);
  close_products();
}

// Begins O += P V, one group of products.
__device__ inline void begin_values(Values& o, Weights& p,
                                    const Half* tile_v) {
  pin(o), pin(p);
  begin_products();
#pragma unroll
  for (int n = 0; n < Bc / 16; ++n)
    multiply_values(
        o, p[n], descriptor(tile_v + n * 16 * BOX, Bc * BOX * 2));
  close_products();
}

// Waits until at most PENDING groups are incomplete. Then these sums
// may be used.
template <int PENDING, int N>
__device__ inline void wait_sums(float (&sums)[N][4]) {
  wait_products<PENDING>();
  pin(sums);
}

// -- softmax ------------------------------------------------------
// Returns the first of the two rows of this lane in its warpgroup. The
// other one is 8 below.
__device__ inline int lane_row() {
  return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
}

// Replaces the scores of hidden keys by -infinity. `keys`: how many
// keys of the tile each row sees, counted from the first.
__device__ inline void hide_keys(Scores& s, int upper_keys,
                                 int lower_keys) {
#pragma unroll
  for (int j = 0; j < Bc / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      int key = j * 8 + threadIdx.x % 4 * 2 + e % 2;
      if (key >= (e < 2 ? upper_keys : lower_keys)) s[j][e] = -INFINITE;
    }
}

// Returns the largest score of a row of the tile. Four lanes share it.
__device__ inline float row_maximum(const Scores& s, int lower) {
  float largest = -INFINITE;
#pragma unroll
  for (int j = 0; j < Bc / 8; ++j)
    largest =
        fmaxf(largest, fmaxf(s[j][2 * lower], s[j][2 * lower + 1]));
  largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
  return fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
}

// If a maximum is very large, its rounding error exceeds the tolerance
// of an exponent. Then each product is rounded, and the maximum is
// subtracted here: `base` becomes 0.
__device__ inline void subtract_far(Scores& s, float factor,
                                    Rows& base) {
  if (fmaxf(fabsf(base[0]), fabsf(base[1])) < FAR) return;
#pragma unroll
  for (int j = 0; j < Bc / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      s[j][e] =
          (__fmul_rn(s[j][e], factor) - base[e / 2]) * (1 / factor);
  base[0] = base[1] = 0;
}

// Updates the row maxima m of factor * score with those of the tile.
// `base` is what the exponents subtract from now on. Older sums are to
// be multiplied by `rescale`.
__device__ inline void update_maxima(Scores& s, float factor, Rows& m,
                                     Rows& base, Rows& rescale) {
#pragma unroll
  for (int lower = 0; lower < 2; ++lower) {
    float old_m = m[lower];
    m[lower] = fmaxf(old_m, row_maximum(s, lower) * factor);
    // If all scores so far are -infinity, any finite base gives zeros.
    base[lower] = m[lower] == -INFINITE ? 0.0f : m[lower];
    rescale[lower] = exp2_(old_m - base[lower]);
  }
  subtract_far(s, factor, base);
}

// Replaces scores by weights. Rescales l and adds the weights to it.
__device__ inline void exponentiate(Scores& s, float factor,
                                    const Rows& base,
                                    const Rows& rescale, Rows& l) {
  l[0] *= rescale[0], l[1] *= rescale[1];
#pragma unroll
  for (int j = 0; j < Bc / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[j][e] = exp2_(fmaf(s[j][e], factor, -base[e / 2]));
      l[e / 2] += s[j][e];
    }
}

// Rounds weights to 16 bits. The sums of one product are in the lane
// where the next product reads its left factor.
__device__ inline void round_weights(Weights& p, const Scores& s) {
#pragma unroll
  for (int j = 0; j < Bc / 8; ++j) {
    p[j / 2][j % 2 * 2] = pair(s[j][0], s[j][1]);
    p[j / 2][j % 2 * 2 + 1] = pair(s[j][2], s[j][3]);
  }
}

// Multiplies each row of O by its factor.
__device__ inline void rescale_values(Values& o, const Rows& rescale) {
#pragma unroll
  for (int j = 0; j < DP / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) o[j][e] *= rescale[e / 2];
}

// Transposes 4 x 4 numbers: lane i of four has row i before, and
// column i after.
__device__ inline void transpose(unsigned (&x)[4]) {
  int lane = threadIdx.x % 4;
#pragma unroll
  for (int apart = 1; apart < 4; apart *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & apart) continue;
      int j = i + apart;  // x[i] of one lane is x[j] of the other
      unsigned sent = lane & apart ? x[i] : x[j];
      sent = __shfl_xor_sync(~0u, sent, apart);
      if (lane & apart)
        x[i] = sent;
      else
        x[j] = sent;
    }
}

// Stores the lane's two rows of O [N, d], divided by their sums l. d is
// a multiple of 8. Four lanes have pairs of the same 32 columns. They
// exchange them, so that each stores 8 neighbours, 16 bytes.
__device__ inline void store_values(Half* O, const Values& o,
                                    const Rows& l, int query, int N,
                                    int d) {
#pragma unroll
  for (int lower = 0; lower < 2; ++lower, query += 8) {
    float sum = l[lower];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    float inverse = 1 / sum;
#pragma unroll
    for (int j = 0; j < DP / 8; j += 4) {
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        pairs[i] = pair(o[j + i][2 * lower] * inverse,
                        o[j + i][2 * lower + 1] * inverse);
      transpose(pairs);
      int col = (j + threadIdx.x % 4) * 8;
      if (query < N && col < d)
        *(uint4*)&O[(size_t)query * d + col] =
            make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  }
}
