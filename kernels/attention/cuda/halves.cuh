// 16-bit numbers, fp16 or bf16. The kernels copy them and round FP32
// to them, to the nearest.

typedef unsigned short Half;

#if BF16
#define PAIR_TYPE "bf16x2"
#else
#define PAIR_TYPE "f16x2"
#endif

// Returns both numbers rounded to 16 bits, `low` in the lower 16 bits.
__device__ inline unsigned pair(float low, float high) {
  unsigned both;
  asm("cvt.rn." PAIR_TYPE ".f32 %0, %1, %2;"
      : "=r"(both) : "f"(high), "f"(low));
  return both;
}
