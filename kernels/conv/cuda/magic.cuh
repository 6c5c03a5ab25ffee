// Division by a number known before the launch (kernels/model/fast_division.py
// proves it): the GPU has no instruction that divides whole numbers,
// and `/` becomes about twenty.

struct Magic {
  unsigned multiplier;
  int shift;
};

// n / d for 0 <= n < 2^31; `by` was made for d.
__device__ inline int divide(int n, const Magic& by) {
  return __umulhi((unsigned)n << 1, by.multiplier) >> by.shift;
}
