// A copy that reads every stride-th float.
//
// Idea: a warp's 32 loads are served in pieces of 32 bytes,
// called sectors. At stride 1 the 32 floats lie in 4 sectors and
// every byte fetched is used; at stride 2 in 8; from stride 8 on
// each lane needs a sector of its own: 32 sectors for 32 floats.
// What limits it: HBM, which moves 32 bytes for each float kept.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.

extern "C" __global__ void strided_copy(
    const float* __restrict__ x,  // [(n - 1) * stride + 1]
    float* __restrict__ y,        // [n]
    int n, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = x[(size_t)i * stride];
}
