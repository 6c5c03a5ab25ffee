// A product of fragments: what wmma's loads and stores cost.
//
// Idea: load_matrix_sync says where a tile begins and how far its
// lines are apart; the compiler decides what a lane loads. From
// shared memory it loads half by ldmatrix, 16 x 16 in a request.
// From global memory it makes a request for each 8 x 8. bfloat16,
// tf32 and double are loaded the second way from either memory.
// If the lines of a tile of char run across the depth, each lane
// loads single bytes. What limits it: sectors, for a request
// touches eight lines.
//
// Launch: grid (tiles), block 32; with SHARED dynamic shared
// memory for the tiles of A, B and C. WM, WN, WK: the fragments'
// shape. TYPE: 0 half, 1 bfloat16, 2 tf32, 3 signed char,
// 4 unsigned char, 5 double. HALF_SUM: sums in half (TYPE 0).
// A_ROW, B_ROW, C_ROW: 1 if rows are contiguous, 0 if columns.

#include <mma.h>

using namespace nvcuda;

#if TYPE == 0
typedef half Element, Kind;
#elif TYPE == 1
typedef __nv_bfloat16 Element, Kind;
#elif TYPE == 2
typedef float Element;
typedef wmma::precision::tf32 Kind;
#elif TYPE == 3
typedef signed char Element, Kind;
#elif TYPE == 4
typedef unsigned char Element, Kind;
#else
typedef double Element, Kind;
#endif

#if TYPE == 5
typedef double Sum;
#elif TYPE >= 3
typedef int Sum;
#elif HALF_SUM
typedef half Sum;
#else
typedef float Sum;
#endif

#if A_ROW
typedef wmma::row_major LayoutA;
#else
typedef wmma::col_major LayoutA;
#endif
#if B_ROW
typedef wmma::row_major LayoutB;
#else
typedef wmma::col_major LayoutB;
#endif

constexpr auto C_LAYOUT =
    C_ROW ? wmma::mem_row_major : wmma::mem_col_major;

// Lanes copy `count` elements from x to y.
template <typename T>
__device__ inline void copy(T* y, const T* x, int count) {
#pragma unroll 1
  for (int i = threadIdx.x; i < count; i += 32) y[i] = x[i];
}

extern "C" __global__ void wmma_product(
    const Element* A,  // [tiles, WM, lda], by columns WK for WM
    const Element* B,  // [tiles, WK, ldb], by columns WN for WK
    Sum* C,            // [tiles, WM, ldc], by columns WN for WM
    int lda, int ldb, int ldc) {
  int a_size = (A_ROW ? WM : WK) * lda;
  int b_size = (B_ROW ? WK : WN) * ldb;
  int c_size = (C_ROW ? WM : WN) * ldc;
  A += blockIdx.x * a_size;
  B += blockIdx.x * b_size;
  C += blockIdx.x * c_size;
#if SHARED
  extern __shared__ __align__(128) char shared[];
  auto c_at = (Sum*)shared;
  auto a_at = (Element*)(c_at + c_size);
  auto b_at = a_at + a_size;
  copy(a_at, A, a_size);
  copy(b_at, B, b_size);
  copy(c_at, C, c_size);
  __syncwarp();
#else
  auto a_at = A, b_at = B;
  auto c_at = C;
#endif
  wmma::fragment<wmma::matrix_a, WM, WN, WK, Kind, LayoutA> a;
  wmma::fragment<wmma::matrix_b, WM, WN, WK, Kind, LayoutB> b;
  wmma::fragment<wmma::accumulator, WM, WN, WK, Sum> c;
  wmma::load_matrix_sync(a, a_at, lda);
  wmma::load_matrix_sync(b, b_at, ldb);
  wmma::load_matrix_sync(c, c_at, ldc, C_LAYOUT);
  wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(c_at, c, ldc, C_LAYOUT);
#if SHARED
  __syncwarp();
  copy(C, c_at, c_size);
#endif
}
