// A tensor core with FP16: 2,048 products an instruction.
//
// Idea: mma.sync multiplies A [16, 16] by B [16, 8] for the whole
// warp and adds to FP32 sums: two instructions for a product of the
// matrices. Each lane holds parts of A, B and C (PTX ISA,
// "mma.m16n8k16"). Its four sums are those of 01_ffma.cu.
// What limits it: the tensor cores. One instruction is fetched and
// decoded for 2,048 multiply-adds.
//
// Launch: grid ceil(warps / (BLOCK / 32)), block BLOCK.

// Two neighbours along k, `stride` apart, as a pair of FP16.
__device__ inline unsigned pair(const signed char* from, int stride) {
  unsigned short l, h;
  int low = from[0], high = from[stride];
  asm("cvt.rn.f16.s32 %0, %1;" : "=h"(l) : "r"(low));
  asm("cvt.rn.f16.s32 %0, %1;" : "=h"(h) : "r"(high));
  return l | (unsigned)h << 16;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
mma_fp16(
    const signed char* __restrict__ A,  // [16, 32], in 0 .. 2
    const signed char* __restrict__ B,  // [32, 8], in 0 .. 2
    float* __restrict__ C,              // [warps, 16, 8]
    int warps, int turns) {
  int warp = (blockIdx.x * BLOCK + threadIdx.x) / 32;
  if (warp >= warps) return;
  int lane = threadIdx.x % 32;
  int row = lane / 4, col = lane % 4 * 2;
  unsigned a[2][4], b[2][2];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int first = 16 * k + 8 * i + col;  // of two along k
      a[k][2 * i] = pair(A + row * 32 + first, 1);
      a[k][2 * i + 1] = pair(A + (row + 8) * 32 + first, 1);
      b[k][i] = pair(B + first * 8 + row, 8);
    }
  }

  float sum[2][2] = {};
#pragma unroll 8
  for (int turn = 0; turn < turns; ++turn) {
#pragma unroll
    for (int k = 0; k < 2; ++k)
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(sum[0][0]), "+f"(sum[0][1]), "+f"(sum[1][0]),
            "+f"(sum[1][1])
          : "r"(a[k][0]), "r"(a[k][1]), "r"(a[k][2]), "r"(a[k][3]),
            "r"(b[k][0]), "r"(b[k][1]));
  }

  float* c = C + (size_t)warp * 128;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      c[(row + 8 * i) * 8 + col + j] = sum[i][j];
}
