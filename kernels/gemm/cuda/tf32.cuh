// Products of TF32 by wgmma, how FP32 is split for them, and how a
// warpgroup stores its sums.

#include "../../cuda/hopper.cuh"

// x = big + small. big is x rounded to TF32, which keeps 10 bits of
// the fraction. small has the bits that big lost.
__device__ inline void split(float x, unsigned& big,
                             unsigned& small) {
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(big) : "f"(x));
  small = __float_as_uint(x - __uint_as_float(big));
}

// sum [64, N] = a [64, 8] x b [8, N], plus sum if `add` is not 0.
// Begins a product of the whole warpgroup, for N = 64 and 128. The
// tensor core ignores the 13 lowest bits of each factor. Lane l of
// warp w has rows 16 w + l / 4 and 8 below. a: these rows at column
// l % 4, then at l % 4 + 4. b is in shared memory, its rows along k.
__device__ inline void multiply_tf32(float (&sum)[8][4],
                                     const unsigned (&a)[4],
                                     unsigned long long b, int add) {
  asm volatile(
      "{\n.reg .pred add;\n"
      "setp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
      "%26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, add, 1, 1;\n}"
      : SUMS_32(sum, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ inline void multiply_tf32(float (&sum)[16][4],
                                     const unsigned (&a)[4],
                                     unsigned long long b, int add) {
  asm volatile(
      "{\n.reg .pred add;\n"
      "setp.ne.b32 add, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
      "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
      "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
      "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63}, "
      "{%64, %65, %66, %67}, %68, add, 1, 1;\n}"
      : SUMS_32(sum, 0), SUMS_32(sum, 8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

// Stores sums [64, COLS] of a warpgroup from (row, col) of C [M, N]
// on: alpha * sum + beta * C0. N is even.
template <int COLS>
__device__ inline void store_sums(const float (&sum)[COLS / 8][4],
                                  const float* C0, float* C, int row,
                                  int col, int M, int N, float alpha,
                                  float beta) {
  // A lane stores two neighbours of a row at a time. Three other
  // lanes store the rest of the sector.
  row += threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  col += threadIdx.x % 4 * 2;
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {  // 8 rows apart
    int m = row + pair * 8;
    if (m >= M) break;
#pragma unroll
    for (int j = 0; j < COLS / 8; ++j) {
      int n = col + j * 8;
      if (n >= N) break;
      size_t c_index = (size_t)m * N + n;
      float2 c = make_float2(alpha * sum[j][pair * 2],
                             alpha * sum[j][pair * 2 + 1]);
      if (beta != 0) {
        float2 c0 = *(const float2*)&C0[c_index];
        c.x += beta * c0.x;
        c.y += beta * c0.y;
      }
      *(float2*)&C[c_index] = c;
    }
  }
}
