// A histogram by atomics in shared memory.
//
// Idea: each block counts into bins in its shared memory. At the
// end it adds them to the result. That takes `bins` global
// atomics per block instead of one per thread.
// What limits it: lanes of a warp with the same bin. Their
// updates are still serialized.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.

const int MOST_BINS = 1024;

extern "C" __global__ void histogram_shared(
    const int* __restrict__ values,  // [n]
    int* __restrict__ counts,        // [bins], zero before
    int n, int bins) {               // bins <= 1024
  __shared__ int block_counts[MOST_BINS];
  for (int bin = threadIdx.x; bin < MOST_BINS; bin += blockDim.x)
    block_counts[bin] = 0;
  __syncthreads();
  int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element < n) {
    int bin = values[element];
    if (0 <= bin && bin < bins) atomicAdd(&block_counts[bin], 1);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < bins && bin < MOST_BINS;
       bin += blockDim.x)
    if (block_counts[bin])
      atomicAdd(&counts[bin], block_counts[bin]);
}
