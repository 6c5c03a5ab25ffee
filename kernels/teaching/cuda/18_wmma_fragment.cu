// Which lane holds which element of a fragment.
//
// Idea: wmma leaves open how a fragment lies over the lanes, so
// that x[i] may be used only if every element is treated the
// same. On the hardware since 2020 (compute capability 8.0 and
// up) it is the layout of the mma instruction. Here the elements
// of a tile are numbered and each lane writes down its own. What
// limits it: nothing; it is a look at the registers.
//
// Launch: grid (1), block 32. WM, WN, WK: the fragments' shape.
// WHICH: 0 matrix_a, 1 matrix_b (half), 2 accumulator (float).

#include <mma.h>

using namespace nvcuda;

#if WHICH == 0
typedef half Element;
typedef wmma::fragment<wmma::matrix_a, WM, WN, WK, half,
                       wmma::row_major> Fragment;
#elif WHICH == 1
typedef half Element;
typedef wmma::fragment<wmma::matrix_b, WM, WN, WK, half,
                       wmma::row_major> Fragment;
#else
typedef float Element;
typedef wmma::fragment<wmma::accumulator, WM, WN, WK, float>
    Fragment;
#endif

extern "C" __global__ void wmma_fragment(
    const Element* __restrict__ x,  // [rows, columns] of the tile
    Element* __restrict__ y,        // [num_elements, 32]
    int columns) {
  Fragment f;
#if WHICH == 2
  wmma::load_matrix_sync(f, x, columns, wmma::mem_row_major);
#else
  wmma::load_matrix_sync(f, x, columns);
#endif
#pragma unroll
  for (int i = 0; i < f.num_elements; i++)
    y[i * 32 + threadIdx.x] = f.x[i];
}
