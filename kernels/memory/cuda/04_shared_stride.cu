// Reading shared memory at a stride: bank conflicts and padding.
//
// Idea: shared memory has 32 banks, each one word (4 bytes) wide.
// Word w lies in bank w % 32. In one wavefront a bank delivers one
// word. Lane l reads element l * stride of the tile, counted row
// after row. With stride 1, or any odd stride, the 32 lanes use 32
// banks: one wavefront. With stride 2 two words share a bank: two
// wavefronts. With stride 32 the warp reads a column, which lies in
// one bank: 32 wavefronts. PAD 1 adds an unused word after each row.
// A column is then spread over all banks and needs one wavefront.
// Odd strides had no conflict; with PAD they can have one.
// What limits it: the wavefronts. Each thread reads 32 * turns words.
// Each read is one row below the last. All 32 lanes shift by the same
// distance, so the conflicts stay the same.
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
  for (int turn = 0; turn < turns; ++turn) {
    int warp_row = (i / 32 + turn) % 32;  // the same for all lanes
    int row = warp_row + element / COLS;
#pragma unroll
    for (int offset = 0; offset < 32; ++offset)
      sum += tile[row + offset][element % COLS];
  }
  y[i] = sum;
}
