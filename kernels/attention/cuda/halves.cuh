// Halves, 16 bits of fp16 or of bf16: kernels only move them. How
// FP32 becomes one, rounded to the nearest.

typedef unsigned short Half;

#if BF16
#define PAIR_TYPE "bf16x2"
#else
#define PAIR_TYPE "f16x2"
#endif

// a and b as halves, a in the lower 16 bits.
__device__ inline unsigned pair(float a, float b) {
  unsigned both;
  asm("cvt.rn." PAIR_TYPE ".f32 %0, %1, %2;"
      : "=r"(both) : "f"(b), "f"(a));
  return both;
}
