// Matrix add with x and y changed over: the same sum, scattered.
//
// Idea: one line differs from matrix_add. threadIdx.x is given
// the row, so neighbouring threads lie N floats apart and each
// lane of a warp asks for a sector of its own: 32 bytes fetched
// for 4 used. Other warps of the block want the rest of those
// sectors, and find it in a cache only while it is still there.
// What limits it: the sectors that pass between the SMs and the
// L2, up to eight times those of matrix_add.
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
