// Reading shared memory at a stride: bank conflicts and padding.
//
// Idea: shared memory has 32 banks, each one word (4 bytes) wide.
// Word w lies in bank w % 32, and a bank gives one word a pass.
// Lane l reads the tile's element l * stride, counted row after
// row. At stride 1, as at any odd stride, 32 lanes meet 32 banks:
// one pass. At stride 2 two words share a bank: two passes. At
// stride 32 the warp reads down a column, which is one bank: 32
// passes. PAD 1 puts an unused word behind each row: a column
// then leans across all banks and takes one pass. Odd strides,
// which had no conflict, can get one from it.
// What limits it: the passes. Each thread reads 32 * turns words,
// one row further down each time, which shifts all 32 lanes alike
// and changes no conflict; so little else takes time beside them.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK. PAD is a define.

const int ROWS = 96, COLS = 32;  // of the tile

extern "C" __global__ void shared_stride(
    const float* __restrict__ x,  // [96, 32]
    float* __restrict__ y,        // [n]
    int n, int stride, int turns) {
  __shared__ float tile[ROWS][COLS + PAD];
  for (int e = threadIdx.x; e < ROWS * COLS; e += blockDim.x)
    tile[e / COLS][e % COLS] = x[e];
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int element = i % 32 * stride;  // of this lane, at most 31 * 32
  float sum = 0;
  for (int t = 0; t < turns; ++t) {
    int start = (i / 32 + t) % 32;  // one row for the whole warp
    int row = start + element / COLS;
#pragma unroll
    for (int r = 0; r < 32; ++r)
      sum += tile[row + r][element % COLS];
  }
  y[i] = sum;
}
