// Reading 8 or 16 bytes per lane from shared memory.
//
// Idea: 32 banks deliver 128 bytes per wavefront. A warp that
// loads float2 thus needs two wavefronts, one that loads float4
// needs four. Lanes that load the same element can save some:
// `share` neighbouring threads load the same element. If `share`
// is negative, two threads at a distance of -share do. At
// `stride` 2 every other element is skipped, and the banks need
// twice as many wavefronts.
// What limits it: the wavefronts of shared memory.
//
// Launch: grid (ceil(n / 256)), block 256. VECTOR is a define:
// the floats that one lane loads, 2 or 4.

const int ELEMENTS = 256;  // of the table, VECTOR floats each

struct alignas(4 * VECTOR) Element {
  float part[VECTOR];
};

extern "C" __global__ void shared_wide_read(
    const float* __restrict__ input,  // [256 * VECTOR]
    float* __restrict__ output,       // [n]
    int n, int share, int stride) {
  __shared__ Element table[ELEMENTS];
  int thread = threadIdx.x;
  for (int e = thread; e < ELEMENTS; e += blockDim.x)
    table[e] = reinterpret_cast<const Element*>(input)[e];
  __syncthreads();
  int element = blockIdx.x * blockDim.x + thread;
  if (element >= n) return;
  // Threads with the same group load the same element.
  int group = share > 0 ? thread / share : thread & ~-share;
  Element loaded = table[group * stride % ELEMENTS];
  float sum = 0.0f;
  for (int j = 0; j < VECTOR; ++j)
    sum += (j + 1) * loaded.part[j];
  output[element] = sum;
}
