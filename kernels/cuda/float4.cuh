// Four floats of an array at a time: one load or store of 16 bytes.
// The array must begin at a multiple of 16 bytes.

// Loads elements i .. i + 3 of x [count], i a multiple of 4. Elements
// beyond the end become zero.
__device__ inline void load_four(float (&v)[4], const float* x, int i,
                                 int count) {
  if (i + 4 <= count) {
    float4 four = *(const float4*)(x + i);
    v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
  } else {
    for (int j = 0; j < 4; ++j) v[j] = i + j < count ? x[i + j] : 0.0f;
  }
}

// Stores elements i .. i + 3 of y [count], i a multiple of 4. Elements
// beyond the end are left out.
__device__ inline void store_four(float* y, int i, int count,
                                  const float (&v)[4]) {
  if (i + 4 <= count)
    *(float4*)(y + i) = make_float4(v[0], v[1], v[2], v[3]);
  else
    for (int j = 0; j < 4; ++j)
      if (i + j < count) y[i + j] = v[j];
}
