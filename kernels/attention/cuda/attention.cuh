// What the attention kernels share. In all of them heads of all
// images stand one after the other: Q, K, V and O are [B*H, N, d].

constexpr float LOG2E = 1.44269504f;  // exp(x) = 2 to the x * LOG2E
constexpr float INFINITE = __builtin_bit_cast(float, 0x7f800000);

// How many keys, from the first on, query i sees: all N, or if causal
// those up to its own. No later query sees fewer.
__device__ inline int seen(int i, int N, int causal) {
  return causal && i < N ? i + 1 : N;
}

// 2 to the x by the instruction alone. exp2f adds three for results
// below 2^-126: here they become 0.
__device__ inline float exp2_(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
