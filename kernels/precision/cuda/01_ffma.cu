// FP32 multiply-adds: one product an instruction.
//
// Idea: a warp multiplies A [16, 32] by B [32, 8], `turns` times,
// from registers alone. So the time is that of the instructions. A
// thread keeps four of the sums: rows `row` and row + 8, columns
// `col` and col + 1. Each ffma adds one product to one of them: the
// warp executes 128 for a product of the matrices.
// What limits it: the FP32 units, and control. Each instruction is
// fetched and decoded for 32 multiply-adds.
//
// Launch: grid ceil(warps / (BLOCK / 32)), block BLOCK.

extern "C" __global__ void __launch_bounds__(BLOCK)
ffma(
    const signed char* __restrict__ A,  // [16, 32], in 0 .. 2
    const signed char* __restrict__ B,  // [32, 8], in 0 .. 2
    float* __restrict__ C,              // [warps, 16, 8]
    int warps, int turns) {
  int warp = (blockIdx.x * BLOCK + threadIdx.x) / 32;
  if (warp >= warps) return;
  int lane = threadIdx.x % 32;
  int row = lane / 4, col = lane % 4 * 2;
  float a[2][32], b[2][32];
#pragma unroll
  for (int k = 0; k < 32; ++k) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[i][k] = A[(row + 8 * i) * 32 + k];
      b[i][k] = B[k * 8 + col + i];
    }
  }

  float sum[2][2] = {};
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn) {
#pragma unroll
    for (int k = 0; k < 32; ++k)
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          sum[i][j] = __fmaf_rn(a[i][k], b[j][k], sum[i][j]);
  }

  float* c = C + (size_t)warp * 128;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      c[(row + 8 * i) * 8 + col + j] = sum[i][j];
}
