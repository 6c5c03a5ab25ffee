// Which lane has which element of a fragment.
//
// Idea: wmma does not define which lane has which element of a
// fragment. So x[i] may be used only if all elements are treated
// equally. On the hardware since 2020 (compute capability 8.0
// and up) a fragment has the layout of the mma instruction. The
// elements of a tile are numbered, and each lane stores its own.
// What limits it: nothing; the kernel only shows the registers.
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
    const Element* __restrict__ tile,  // [rows, columns]
    Element* __restrict__ output,      // [num_elements, 32]
    int columns) {
  Fragment fragment;
#if WHICH == 2
  wmma::load_matrix_sync(fragment, tile, columns,
                         wmma::mem_row_major);
#else
  wmma::load_matrix_sync(fragment, tile, columns);
#endif
#pragma unroll
  for (int i = 0; i < fragment.num_elements; i++)
    output[i * 32 + threadIdx.x] = fragment.x[i];
}
