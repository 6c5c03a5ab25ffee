// A tensor core with INT8: 4,096 products an instruction.
//
// Idea: with 8-bit numbers, mma.sync multiplies A [16, 32] by
// B [32, 8]: one instruction for a product of the matrices. The sums
// are INT32. The rest is as in 04_mma_fp16.cu (PTX ISA,
// "mma.m16n8k32").
// What limits it: the tensor cores. One instruction is fetched and
// decoded for 4,096 multiply-adds.
//
// Launch: grid ceil(warps / (BLOCK / 32)), block BLOCK.

// Four neighbours along k, `stride` apart, as bytes of a register.
__device__ inline int four(const signed char* from, int stride) {
  int bytes = 0;
#pragma unroll
  for (int e = 0; e < 4; ++e)
    bytes |= (from[e * stride] & 255) << 8 * e;
  return bytes;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
mma_int8(
    const signed char* __restrict__ A,  // [16, 32], in 0 .. 2
    const signed char* __restrict__ B,  // [32, 8], in 0 .. 2
    float* __restrict__ C,              // [warps, 16, 8]
    int warps, int turns) {
  int warp = (blockIdx.x * BLOCK + threadIdx.x) / 32;
  if (warp >= warps) return;
  int lane = threadIdx.x % 32;
  int row = lane / 4, col = lane % 4 * 2;
  int a[4], b[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    int first = 16 * i + lane % 4 * 4;  // of four along k
    a[2 * i] = four(A + row * 32 + first, 1);
    a[2 * i + 1] = four(A + (row + 8) * 32 + first, 1);
    b[i] = four(B + first * 8 + row, 8);
  }

  int sum[2][2] = {};
#pragma unroll 8
  for (int turn = 0; turn < turns; ++turn) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(sum[0][0]), "+r"(sum[0][1]), "+r"(sum[1][0]),
          "+r"(sum[1][1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),
          "r"(b[1]));
  }

  float* c = C + (size_t)warp * 128;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      c[(row + 8 * i) * 8 + col + j] = sum[i][j];
}
