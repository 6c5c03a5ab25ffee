// A product of fragments: the cost of wmma's loads and stores.
//
// Idea: load_matrix_sync receives the start of a tile and the
// distance of its rows or columns. The compiler decides what
// each lane loads. From shared memory it loads half by ldmatrix,
// 16 x 16 in one request. From global memory it makes a request
// for each 8 x 8. It loads bfloat16, tf32 and double the second
// way from either memory. A char tile can have its contiguous
// axis along M or N. Then each lane loads single bytes.
// What limits it: sectors, because a request covers eight rows
// or columns.
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

// The lanes copy `count` elements.
template <typename T>
__device__ inline void copy(T* target, const T* source,
                            int count) {
#pragma unroll 1
  for (int element = threadIdx.x; element < count; element += 32)
    target[element] = source[element];
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
  auto tile_c = (Sum*)shared;
  auto tile_a = (Element*)(tile_c + c_size);
  auto tile_b = tile_a + a_size;
  copy(tile_a, A, a_size);
  copy(tile_b, B, b_size);
  copy(tile_c, C, c_size);
  __syncwarp();
#else
  auto tile_a = A, tile_b = B;
  auto tile_c = C;
#endif
  wmma::fragment<wmma::matrix_a, WM, WN, WK, Kind, LayoutA> a;
  wmma::fragment<wmma::matrix_b, WM, WN, WK, Kind, LayoutB> b;
  wmma::fragment<wmma::accumulator, WM, WN, WK, Sum> c;
  wmma::load_matrix_sync(a, tile_a, lda);
  wmma::load_matrix_sync(b, tile_b, ldb);
  wmma::load_matrix_sync(c, tile_c, ldc, C_LAYOUT);
  wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(tile_c, c, ldc, C_LAYOUT);
#if SHARED
  __syncwarp();
  copy(C, tile_c, c_size);
#endif
}
