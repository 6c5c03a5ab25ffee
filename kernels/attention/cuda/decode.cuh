// What both kernels of decoding share: the type of Q, K, V and O, and
// how 16 bytes of them become floats. BYTES of an element and BF16 are
// defines.

#include "attention.cuh"
#include "halves.cuh"
#include "variants.cuh"

#if BYTES == 4
typedef float Element;
#else
typedef Half Element;
#endif

constexpr int WIDE = 16 / BYTES;  // elements in 16 bytes

// Returns 16 bytes of a row of d elements, from column `col` on. What
// is outside of the row is zero.
__device__ inline uint4 load16(const Element* row, int col, int d) {
  uint4 bits = {};
  if (col >= d) return bits;
  if (d % WIDE == 0)  // then each row begins on 16 bytes
    return *(const uint4*)(row + col);
  auto elements = (Element*)&bits;
#pragma unroll
  for (int n = 0; n < WIDE; ++n)
    if (col + n < d) elements[n] = row[col + n];
  return bits;
}

// Writes the WIDE elements of 16 bytes as floats.
__device__ inline void unpack(float (&values)[WIDE], uint4 bits) {
  unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int n = 0; n < WIDE; ++n)
#if BYTES == 4
    values[n] = __builtin_bit_cast(float, words[n]);
#else
    values[n] = from_half(words[n / 2] >> 16 * (n % 2));
#endif
}

// Returns a float rounded to the type of O.
__device__ inline Element rounded(float value) {
#if BYTES == 4
  return value;
#else
  return pair(value, 0.0f);
#endif
}
