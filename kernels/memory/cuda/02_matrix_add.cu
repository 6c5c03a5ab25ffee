// Matrix add: a square of threads for a square of elements.
//
// Idea: a matrix lies in memory row after row, so column + 1 is
// the next float and row + 1 is N floats on. threadIdx.x counts
// fastest through a warp: it is given the column, and a warp
// asks for neighbouring floats: a row's worth at TILE 32, two
// runs of 16 at TILE 16, four runs of 8 at TILE 8.
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
