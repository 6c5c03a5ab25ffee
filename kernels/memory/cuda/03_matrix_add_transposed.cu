// Matrix add with x and y exchanged: the same sum, scattered loads.
//
// Idea: only the lines with row and col differ from matrix_add.
// threadIdx.x now selects the row. Neighbouring threads access
// floats that are N floats apart. Each lane of a warp loads a sector
// of its own: 32 bytes for 4 that it uses. Other warps of the block
// need the rest of those sectors. They find it in a cache only while
// it is still there.
// What limits it: the sectors between the SMs and the L2, up to
// eight times those of matrix_add.
//
// Launch: grid (ceil(M / TILE), ceil(N / TILE)), block (TILE,
// TILE).

extern "C" __global__ void matrix_add_transposed(
    const float* __restrict__ A,  // [M, N]
    const float* __restrict__ B,  // [M, N]
    float* __restrict__ C,        // [M, N]
    int M, int N) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  int col = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || col >= N) return;
  size_t i = (size_t)row * N + col;
  C[i] = A[i] + B[i];
}
