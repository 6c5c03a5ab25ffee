// A histogram by atomics in global memory.
//
// Idea: every thread adds one to the bin of its value. Atomics
// are carried out in the L2 cache; threads that meet in a bin
// take turns. What limits it: the fullest bin. The fewer the
// bins, the more threads wait for each other.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.

extern "C" __global__ void histogram_global(
    const int* __restrict__ value,  // [n]
    int* __restrict__ count,        // [bins], zero before
    int n, int bins) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int bin = value[i];
  if (0 <= bin && bin < bins) atomicAdd(&count[bin], 1);
}
