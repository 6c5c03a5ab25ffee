// Shared by the fusion kernels: the sizes of the maps, and how values
// of a map are found, loaded and stored.

#include "../../cuda/magic.cuh"

struct Maps {
  int N, C, H, W;      // input: images, maps, rows, columns
  int K, P, Q;         // output: maps, rows, columns
  int R, stride, pad;  // window R x R of a convolution or a pool
  Magic by_Q, by_PQ, by_K;  // to divide by Q, P*Q and K
};

// Less than every float: the first maximum.
constexpr float INFINITE = __builtin_bit_cast(float, 0x7f800000);

// Returns the number of values of the output.
__device__ inline int output_count(const Maps& shape) {
  return shape.N * shape.K * shape.P * shape.Q;
}

// Returns the map, 0 .. K - 1, of value i of the output.
__device__ inline int map_of(int i, const Maps& shape) {
  int plane = divide(i, shape.by_PQ);  // n*K + k
  return plane - divide(plane, shape.by_K) * shape.K;
}

// Loads values i .. i + 3 of x [count], as one float4 if there are
// four; otherwise values beyond the end become zero.
__device__ inline void load(float (&v)[4], const float* x, int i,
                            int count) {
  if (i + 4 <= count) {
    float4 four = *(const float4*)(x + i);
    v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
  } else {
    for (int j = 0; j < 4; ++j) v[j] = i + j < count ? x[i + j] : 0.0f;
  }
}

// Stores values i .. i + 3 of y [count], as one float4 if there are
// four.
__device__ inline void store(float* y, const float (&v)[4], int i,
                             int count) {
  if (i + 4 <= count) {
    *(float4*)(y + i) = make_float4(v[0], v[1], v[2], v[3]);
  } else {
    for (int j = 0; j < 4; ++j)
      if (i + j < count) y[i + j] = v[j];
  }
}

// Returns 0 for a negative value. NaN stays NaN, as in a maximum.
__device__ inline float positive(float v) {
  return v < 0.0f ? 0.0f : v;
}

__device__ inline float larger(float a, float b) {
  return b > a || b != b ? b : a;
}
