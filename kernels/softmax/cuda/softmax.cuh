// What the softmax kernels share.

constexpr float INFINITE = __builtin_bit_cast(float, 0x7f800000);

// The maximum m and the sum l of exp(x - m) of some of a row's numbers.
// Of none at all: m = -infinity, l = 0.
struct Running {
  float m, l;
};

// Both of a and b as one: the sum of the smaller maximum is rescaled to
// the larger. Where both are -infinity there is nothing to rescale, and
// -infinity - -infinity would be NaN.
__device__ inline Running merge(Running a, Running b) {
  float m = fmaxf(a.m, b.m), base = m == -INFINITE ? 0.0f : m;
  return {m, a.l * expf(a.m - base) + b.l * expf(b.m - base)};
}
