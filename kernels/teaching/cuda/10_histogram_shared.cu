// A histogram by atomics in shared memory.
//
// Idea: each block counts into bins of its own, close at hand,
// and adds them to the result once at its end: `bins` global
// atomics a block instead of one a thread. What limits it: lanes
// of a warp that meet in a bin, for they still take turns.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.

const int MOST_BINS = 1024;

extern "C" __global__ void histogram_shared(
    const int* __restrict__ value,  // [n]
    int* __restrict__ count,        // [bins], zero before
    int n, int bins) {              // bins <= 1024
  __shared__ int mine[MOST_BINS];
  for (int b = threadIdx.x; b < MOST_BINS; b += blockDim.x)
    mine[b] = 0;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    int bin = value[i];
    if (0 <= bin && bin < bins) atomicAdd(&mine[bin], 1);
  }
  __syncthreads();
  for (int b = threadIdx.x; b < bins && b < MOST_BINS;
       b += blockDim.x)
    if (mine[b]) atomicAdd(&count[b], mine[b]);
}
