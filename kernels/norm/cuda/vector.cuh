// Loads and stores of WIDTH floats. WIDTH is a define: 4 where rows are
// whole float4, else 1.

// Loads WIDTH floats: 4 of them in one load of 16 bytes.
__device__ inline void load(float (&to)[WIDTH], const float* from) {
  if constexpr (WIDTH == 4) {
    float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
  } else {
    to[0] = *from;
  }
}

// Stores WIDTH floats.
__device__ inline void store(float* to, const float (&from)[WIDTH]) {
  if constexpr (WIDTH == 4)
    *reinterpret_cast<float4*>(to) =
        make_float4(from[0], from[1], from[2], from[3]);
  else
    *to = from[0];
}

// Sets WIDTH floats to 0: those beyond the end.
__device__ inline void clear(float (&to)[WIDTH]) {
  for (float& value : to) value = 0.0f;
}
