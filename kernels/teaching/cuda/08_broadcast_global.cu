// A polynomial whose coefficients every thread reads.
//
// Idea: all 32 lanes load the same float, so the warp requests
// one sector. Nothing is loaded twice. But every term is a
// request to the L1 cache, for 4 bytes. Constant or shared
// memory would be faster.
// What limits it: `terms` loads, each with its latency.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.

extern "C" __global__ void broadcast_global(
    const float* __restrict__ coefficients,  // [terms]
    const float* __restrict__ input,         // [n]
    float* __restrict__ output,              // [n]
    int n, int terms) {
  int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= n) return;
  float x = input[element], sum = 0.0f;
  for (int term = terms - 1; term >= 0; --term)
    sum = sum * x + coefficients[term];
  output[element] = sum;
}
