// Shared by the softmax kernels.

constexpr float INFINITE = __builtin_bit_cast(float, 0x7f800000);

// Of some numbers x of a row: the maximum m and the sum l of
// exp(x - m). Of no number: m = -infinity and l = 0.
struct Running {
  float m, l;
};

// Returns m and l of both parts together. Each sum is rescaled to the
// larger maximum. If both maxima are -infinity, nothing is rescaled:
// -infinity - -infinity would be NaN.
__device__ inline Running merge(Running a, Running b) {
  float m = fmaxf(a.m, b.m), shift = m == -INFINITE ? 0.0f : m;
  return {m, a.l * expf(a.m - shift) + b.l * expf(b.m - shift)};
}
