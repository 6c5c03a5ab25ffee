// GELU (arXiv 1606.08415): x times the share of normal numbers below x.
// FORM 0 computes that share by erf, FORM 1 approximates it by tanh.

#if FORM == 0
// The share of normal numbers below x.
__device__ inline float share_below(float x) {
  return 0.5f * (1.0f + erff(0.70710678f * x));
}

// The derivative of x * share_below(x): the share, and x times the
// density of normal numbers at x.
__device__ inline float slope_of(float x) {
  return share_below(x) + x * 0.39894228f * expf(-0.5f * x * x);
}
#else
// What tanh is applied to: sqrt(2 / pi) * (x + 0.044715 * x^3).
__device__ inline float inner(float x) {
  return 0.79788456f * (x + 0.044715f * x * x * x);
}

__device__ inline float share_below(float x) {
  return 0.5f * (1.0f + tanhf(inner(x)));
}

// The derivative of x * share_below(x). Beyond 10 the share is 0 or 1 in
// float32, and its derivative 0: x is bounded there, because x^2 can be
// infinite. NaN stays NaN.
__device__ inline float slope_of(float x) {
  float at = fabsf(x) > 10.0f ? copysignf(10.0f, x) : x;
  float t = tanhf(inner(at));
  float of_inner = 0.79788456f * (1.0f + 0.134145f * at * at);
  return 0.5f * (1.0f + t) + 0.5f * at * (1.0f - t * t) * of_inner;
}
#endif
