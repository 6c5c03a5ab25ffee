// Matrix add: a square of threads for a square of elements.
//
// Idea: a matrix lies in memory row after row. Column + 1 is the
// next float; row + 1 is N floats further. Lanes of a warp differ
// in threadIdx.x first. So threadIdx.x selects the column, and a
// warp loads neighbouring floats. With TILE 32 these are 32 floats
// of one row. With TILE 16 they are two runs of 16, with TILE 8
// four runs of 8.
// What limits it: HBM, as for the vector.
//
// Launch: grid (ceil(N / TILE), ceil(M / TILE)), block (TILE,
// TILE).

extern "C" __global__ void matrix_add(
    const float* __restrict__ A,  // [M, N]
    const float* __restrict__ B,  // [M, N]
    float* __restrict__ C,        // [M, N]
    int M, int N) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  size_t i = (size_t)row * N + col;
  C[i] = A[i] + B[i];
}
