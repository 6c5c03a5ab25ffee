// Reading 8 or 16 bytes a lane from shared memory.
//
// Idea: 32 banks deliver 128 bytes a pass, so a warp that asks
// for float2 needs at least two passes and for float4 four,
// unless lanes ask for the same. Which lanes share decides
// whether passes are saved: `share` neighbouring threads read the
// same element, or, where `share` is negative, two threads that
// are -share apart. At `stride` 2 every other element is left
// out, and banks have to give twice.
// What limits it: the passes through shared memory.
//
// Launch: grid (ceil(n / 256)), block 256. VECTOR is a define:
// floats a lane reads, 2 or 4.

const int ELEMENTS = 256;  // of the table, VECTOR floats each

struct alignas(4 * VECTOR) Element {
  float part[VECTOR];
};

extern "C" __global__ void shared_wide_read(
    const float* __restrict__ x,  // [256 * VECTOR]
    float* __restrict__ y,        // [n]
    int n, int share, int stride) {
  __shared__ Element table[ELEMENTS];
  int t = threadIdx.x;
  for (int e = t; e < ELEMENTS; e += blockDim.x)
    table[e] = reinterpret_cast<const Element*>(x)[e];
  __syncthreads();
  int i = blockIdx.x * blockDim.x + t;
  if (i >= n) return;
  int from = share > 0 ? t / share : t & ~-share;
  Element mine = table[from * stride % ELEMENTS];
  float sum = 0.0f;
  for (int j = 0; j < VECTOR; ++j) sum += (j + 1) * mine.part[j];
  y[i] = sum;
}
