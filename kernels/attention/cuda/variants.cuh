// What the variants of attention change: the keys that a query sees,
// the head of keys that a head of queries reads, and the scores before
// the softmax. BF16 and MASK are defines. MASK is 0, or 1 if a mask
// has bytes (0 hides a pair), or 2 if a bias is added to the scores.

// The keys of a head. Query i has the position i + M - N, so that the
// last query has the position of the last key.
struct Keys {
  int N, M;            // queries and keys
  int causal, window;  // 0: none

  // Returns the first key that a query sees, 0 .. M.
  __device__ int begin(int query) const {
    return window ? clipped(query + M - N - window + 1) : 0;
  }

  // Returns the key after the last one that a query sees, 0 .. M. A
  // later query never has a smaller one.
  __device__ int end(int query) const {
    if (!causal && !window) return M;
    return clipped(query + M - N + (causal ? 1 : window));
  }

  __device__ int clipped(int key) const { return min(max(key, 0), M); }
};

// Returns the head of K and V [B * kv_heads] of a head of Q, if
// `sharing` heads of Q read the same one.
__device__ inline int shared_head(int head, int sharing) {
  return head / sharing;
}

// Returns tanh(x). Its error is below 3e-7, that of tanh.approx 5e-4.
__device__ inline float tanh_(float x) {
  float power = exp2_(fminf(fabsf(x), 20.0f) * (2 * LOG2E));
  return copysignf(1 - __fdividef(2.0f, power + 1), x);
}

// Returns a 16-bit number as a float.
__device__ inline float from_half(unsigned short bits) {
#if BF16
  return __builtin_bit_cast(float, (unsigned)bits << 16);
#else
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#endif
}

__device__ inline float as_float(float x) { return x; }
__device__ inline float as_float(unsigned short x) {
  return from_half(x);
}

#if MASK == 1
// Returns the score, or -infinity if the mask hides the pair.
__device__ inline float masked(float score, unsigned char visible) {
  return visible ? score : -INFINITE;
}
#elif MASK == 2
// Returns the score, an exponent of 2, with the bias added. A bias of
// -infinity hides the pair. A finite one never does, not even the
// lowest number: a sum that is rounded towards zero ends at the largest
// finite numbers. If all scores of a row end there, they are equal.
template <class Element>
__device__ inline float masked(float score, Element bias) {
  return __fmaf_rz(as_float(bias), LOG2E, score);
}
#endif
