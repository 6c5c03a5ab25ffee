// Implicit GEMM in FP16 on the tensor cores.
//
// Idea: channels are the last dimension of the input (NHWC). A row of
// tile_a is then BK adjacent channels of one pixel. One cp.async
// copies 8 of them, 16 bytes. The sum goes over the filter taps
// (r, s), and for each over the channels. All elements of a tile have
// the same tap, so a thread tests the borders once for each row of
// its copies. mma.sync multiplies 16 x 16 by 16 x 8 and adds in FP32.
// What limits it: threads compute the address of each copy, and warps
// load each fragment by ldmatrix before they multiply it.
//
// Launch: grid (ceil(K / BN), ceil(N*P*Q / BM)), block 32 lanes for
// each WM x WN of the tile. Dynamic shared memory: STAGES times tile_a
// and tile_b. BM, BN, BK, WM, WN and STAGES are defines. C and K are
// multiples of 8.

#include "../../cuda/mma.cuh"
#include "half.cuh"

constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int STAGE = (BM + BN) * BK;  // elements of both tiles
constexpr int PASS = THREADS / (BK / 8);  // rows copied at a time
static_assert(BM % PASS == 0 && BN % PASS == 0, "whole passes");

// The first tap of an output pixel's window: its row and column,
// possibly in the padding, and its first channel in the input.
struct Window {
  int h, w, offset;
};

// Adds the product of the tiles of one stage to a warp's sums.
__device__ inline void multiply(float (&sum)[WM / 16][WN / 8][4],
                                const Half* tile_a, int warp_row,
                                int warp_col) {
  const Half* tile_b = tile_a + BM * BK;
  // The lane gives the address of one row of 8 elements.
  int lane = threadIdx.x % 32;
  int a_row = warp_row + lane % 16, a_col = lane / 16 * 8;
  int b_row = warp_col + lane / 16 * 8 + lane % 8;
  int b_col = lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < BK; k += 16) {
    unsigned a[WM / 16][4], b[WN / 16][4];
#pragma unroll
    for (int i = 0; i < WM / 16; ++i)
      load_matrices(a[i],
                    tile_a + swizzled<BK>(a_row + i * 16, a_col + k));
#pragma unroll
    for (int j = 0; j < WN / 16; ++j)
      load_matrices(b[j],
                    tile_b + swizzled<BK>(b_row + j * 16, b_col + k));
#pragma unroll
    for (int i = 0; i < WM / 16; ++i)
#pragma unroll
      for (int j = 0; j < WN / 8; ++j)
        multiply_add(sum[i][j], a[i], b[j / 2][j % 2 * 2],
                     b[j / 2][j % 2 * 2 + 1]);
  }
}

extern "C" __global__ void
__launch_bounds__(THREADS) half_implicit_gemm(
    const Half* __restrict__ input,    // x [N, H, W, C]
    const Half* __restrict__ filters,  // w [K, R, S, C]
    Half* __restrict__ output,         // y [N, P, Q, K]
    Conv shape) {
  extern __shared__ __align__(128) char shared[];
  auto tiles = (Half*)shared;  // [STAGES][BM, BK] and [BN, BK]
  int pixels = shape.N * shape.P * shape.Q;
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  // The thread copies 8 channels of these rows of both tiles.
  int load_row = threadIdx.x / (BK / 8);
  int load_col = threadIdx.x % (BK / 8) * 8;

  Window windows[BM / PASS];
#pragma unroll
  for (int i = 0; i < BM / PASS; ++i) {
    int number = block_row + load_row + i * PASS;
    OutputPixel at = output_pixel(min(number, pixels - 1), shape);
    int h = at.p * shape.u - shape.pad_h;
    int w = at.q * shape.v - shape.pad_w;
    windows[i] = {number < pixels ? h : -(1 << 30), w,
                  ((at.n * shape.H + h) * shape.W + w) * shape.C};
  }
  int inner = shape.R * shape.S * shape.C;  // of a filter
  filters += (size_t)(block_col + load_row) * inner + load_col;

  // Begins to copy the tiles of a step of the sum.
  auto load_tiles = [&](int stage, const Step& step) {
    Half* tile_a = tiles + stage * STAGE;
    Half* tile_b = tile_a + BM * BK;
    bool in_sum = step.r < shape.R && step.c + load_col < shape.C;
    int tap_h = tap_row(step.r, shape);
    int tap_w = tap_column(step.s, shape);
    int tap_offset = (tap_h * shape.W + tap_w) * shape.C + step.c;
#pragma unroll
    for (int i = 0; i < BM / PASS; ++i) {
      unsigned h = windows[i].h + tap_h, w = windows[i].w + tap_w;
      bool inside =
          in_sum && h < (unsigned)shape.H && w < (unsigned)shape.W;
      copy_async<16>(
          tile_a + swizzled<BK>(load_row + i * PASS, load_col),
          input + (windows[i].offset + tap_offset + load_col), inside);
    }
    int tap = (step.r * shape.S + step.s) * shape.C + step.c;
#pragma unroll
    for (int i = 0; i < BN / PASS; ++i) {
      int filter = block_col + load_row + i * PASS;
      copy_async<16>(
          tile_b + swizzled<BK>(load_row + i * PASS, load_col),
          filters + (size_t)i * PASS * inner + tap,
          in_sum && filter < shape.K);
    }
    close_group();
  };

  Step next = {};  // the step that is loaded next
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    load_tiles(stage, next);
    advance(next, BK, shape);
  }
  int warp = threadIdx.x / 32;
  int warp_row = warp / (BN / WN) * WM;
  int warp_col = warp % (BN / WN) * WN;
  float sum[WM / 16][WN / 8][4] = {};
  int steps = shape.R * shape.S * ((shape.C + BK - 1) / BK);
  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wait_groups<STAGES - 2>();  // the stage to read is complete
    __syncthreads();  // all threads have read the stage to fill
    load_tiles(fill_stage, next);
    advance(next, BK, shape);
    multiply(sum, tiles + read_stage * STAGE, warp_row, warp_col);
    read_stage = read_stage + 1 < STAGES ? read_stage + 1 : 0;
    fill_stage = fill_stage + 1 < STAGES ? fill_stage + 1 : 0;
  }
  wait_groups<0>();

  // A lane stores two neighbouring filters of a pixel at a time.
  int row = block_row + warp_row + threadIdx.x % 32 / 4;
  int col = block_col + warp_col + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < WM / 16; ++i)
#pragma unroll
    for (int both = 0; both < 2; ++both) {  // 8 rows apart
      int pixel = row + i * 16 + both * 8;
      if (pixel >= pixels) continue;
      Half* filters_of_pixel = output + (size_t)pixel * shape.K;
#pragma unroll
      for (int j = 0; j < WN / 8; ++j)
        if (col + j * 8 < shape.K)
          *(unsigned*)&filters_of_pixel[col + j * 8] =
              pair(sum[i][j][both * 2], sum[i][j][both * 2 + 1]);
    }
}
