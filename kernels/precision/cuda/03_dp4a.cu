// INT8 by dp4a: four products an instruction.
//
// Idea: a register holds four INT8 numbers, neighbours along k. One
// instruction adds their four products to an INT32 sum: the warp
// executes 32 for a product of the matrices. The rest is as in
// 01_ffma.cu.
// What limits it: the rate of dp4a, and control, which is now spread
// over four times as many multiply-adds as in 01_ffma.cu.
//
// Launch: grid ceil(warps / (BLOCK / 32)), block BLOCK.

// Four numbers of A or B, `stride` apart, as bytes of a register.
__device__ inline int four(const signed char* from, int stride) {
  int bytes = 0;
#pragma unroll
  for (int e = 0; e < 4; ++e)
    bytes |= (from[e * stride] & 255) << 8 * e;
  return bytes;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
dp4a(
    const signed char* __restrict__ A,  // [16, 32], in 0 .. 2
    const signed char* __restrict__ B,  // [32, 8], in 0 .. 2
    float* __restrict__ C,              // [warps, 16, 8]
    int warps, int turns) {
  int warp = (blockIdx.x * BLOCK + threadIdx.x) / 32;
  if (warp >= warps) return;
  int lane = threadIdx.x % 32;
  int row = lane / 4, col = lane % 4 * 2;
  int a[2][8], b[2][8];
#pragma unroll
  for (int k = 0; k < 8; ++k) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[i][k] = four(A + (row + 8 * i) * 32 + 4 * k, 1);
      b[i][k] = four(B + 4 * k * 8 + col + i, 8);
    }
  }

  int sum[2][2] = {};
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn) {
#pragma unroll
    for (int k = 0; k < 8; ++k)
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          sum[i][j] = __dp4a(a[i][k], b[j][k], sum[i][j]);
  }

  float* c = C + (size_t)warp * 128;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      c[(row + 8 * i) * 8 + col + j] = sum[i][j];
}
