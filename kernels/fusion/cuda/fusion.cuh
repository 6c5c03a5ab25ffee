// What every kernel of this ladder is told about the maps it reads
// and writes, and the few lines they share.

#include "../conv/magic.cuh"

struct Maps {
  int N, C, H, W;      // input: images, maps, rows, columns
  int K, P, Q;         // output: maps, rows, columns
  int R, stride, pad;  // window R x R of a convolution or a pool
  Magic by_Q, by_PQ, by_K;  // to divide by Q, P*Q and K
};

// Below every float, as a maximum starts.
constexpr float INFINITE = __builtin_bit_cast(float, 0x7f800000);

__device__ inline int values(const Maps& s) {  // of the output
  return s.N * s.K * s.P * s.Q;
}

// The map, 0 .. K - 1, in which value i of the output lies.
__device__ inline int map_of(int i, const Maps& s) {
  int plane = divide(i, s.by_PQ);  // n*K + k
  return plane - divide(plane, s.by_K) * s.K;
}

// Values i .. i + 3 of n, one float4 where all four are there.
__device__ inline void load(float (&v)[4], const float* x, int i,
                            int n) {
  if (i + 4 <= n) {
    float4 four = *(const float4*)(x + i);
    v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
  } else {
    for (int k = 0; k < 4; ++k) v[k] = i + k < n ? x[i + k] : 0.0f;
  }
}

__device__ inline void store(float* y, const float (&v)[4], int i,
                             int n) {
  if (i + 4 <= n) {
    *(float4*)(y + i) = make_float4(v[0], v[1], v[2], v[3]);
  } else {
    for (int k = 0; k < 4; ++k)
      if (i + k < n) y[i + k] = v[k];
  }
}

// 0 for what is negative; NaN stays NaN, as it does in a maximum.
__device__ inline float positive(float v) {
  return v < 0.0f ? 0.0f : v;
}

__device__ inline float larger(float a, float b) {
  return b > a || b != b ? b : a;
}
