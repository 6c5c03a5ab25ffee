// A polynomial whose coefficients every thread reads.
//
// Idea: all 32 lanes read the same float, and the warp asks for
// one sector. Nothing is fetched twice, yet every step is a
// request of its own to the L1 cache, for 4 bytes of use.
// Constant or shared memory would serve it better. What limits
// it: `terms` loads, each waited for.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.

extern "C" __global__ void broadcast_global(
    const float* __restrict__ coefficient,  // [terms]
    const float* __restrict__ x,            // [n]
    float* __restrict__ y,                  // [n]
    int n, int terms) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float at = x[i], sum = 0.0f;
  for (int t = terms - 1; t >= 0; --t)
    sum = sum * at + coefficient[t];
  y[i] = sum;
}
