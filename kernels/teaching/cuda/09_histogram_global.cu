// A histogram by atomics in global memory.
//
// Idea: every thread adds one to the bin of its value. The L2
// cache executes the atomics. Updates of the same bin are
// serialized.
// What limits it: the bin with the most updates. The fewer bins
// there are, the more updates each bin has.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.

extern "C" __global__ void histogram_global(
    const int* __restrict__ values,  // [n]
    int* __restrict__ counts,        // [bins], zero before
    int n, int bins) {
  int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= n) return;
  int bin = values[element];
  if (0 <= bin && bin < bins) atomicAdd(&counts[bin], 1);
}
