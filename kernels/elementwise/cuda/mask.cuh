// What a ReLU keeps for its backward pass, by KEEP:
// 0: y itself, 1: one byte per element, 2: one bit per element.

#if KEEP == 0
typedef float Kept;
#elif KEEP == 1
typedef unsigned char Kept;
#else
typedef unsigned Kept;
#endif

// Stores whether elements i .. i + 3 of [count] are positive (bits 0 to
// 3), one byte each.
__device__ inline void keep(unsigned char* mask, int i, int count,
                            unsigned positive) {
  if (i + 4 <= count)
    *(uchar4*)(mask + i) = make_uchar4(positive & 1, positive >> 1 & 1,
                                       positive >> 2 & 1, positive >> 3);
  else
    for (int j = 0; j < 4; ++j)
      if (i + j < count) mask[i + j] = positive >> j & 1;
}

// Stores them as bits: 8 lanes hold the 32 bits of a word, 4 bits each.
// They combine them in three exchanges. All lanes must take part.
__device__ inline void keep(unsigned* mask, int i, int count,
                            unsigned positive) {
  unsigned word = positive << 4 * (threadIdx.x % 8);
  for (int lane_mask = 4; lane_mask; lane_mask /= 2)
    word |= __shfl_xor_sync(~0u, word, lane_mask);
  if (threadIdx.x % 8 == 0 && i < count) mask[i / 32] = word;
}

// Returns whether elements i .. i + 3 of [count] are positive, as bits
// 0 to 3. Each reads one of the three forms.
__device__ inline unsigned positive_four(const float* y, int i,
                                         int count) {
  float v[4];
  load_four(v, y, i, count);
  return (v[0] > 0.0f) | (v[1] > 0.0f) << 1 | (v[2] > 0.0f) << 2 |
         (v[3] > 0.0f) << 3;
}

__device__ inline unsigned positive_four(const unsigned char* mask, int i,
                                         int count) {
  if (i + 4 <= count) {
    uchar4 m = *(const uchar4*)(mask + i);
    return m.x | m.y << 1 | m.z << 2 | m.w << 3;
  }
  unsigned positive = 0;
  for (int j = 0; j < 4; ++j)
    if (i + j < count) positive |= (unsigned)mask[i + j] << j;
  return positive;
}

__device__ inline unsigned positive_four(const unsigned* mask, int i,
                                         int count) {
  return i < count ? mask[i / 32] >> i % 32 & 15 : 0;
}
