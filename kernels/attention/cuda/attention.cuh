// What the attention kernels share. The heads of all images follow one
// another in memory: Q, K, V and O are [B*H, N, d].

constexpr float LOG2E = 1.44269504f;  // exp(x) = 2^(x * LOG2E)
constexpr float INFINITE = __builtin_bit_cast(float, 0x7f800000);

// Returns how many keys a query sees, counted from the first: all N,
// or if causal those up to its own position. A later query never sees
// fewer keys.
__device__ inline int visible_keys(int query, int N, int causal) {
  return causal && query < N ? query + 1 : N;
}

// Returns 2^x by one instruction. exp2f adds three instructions for
// results below 2^-126; here such results become 0.
__device__ inline float exp2_(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
