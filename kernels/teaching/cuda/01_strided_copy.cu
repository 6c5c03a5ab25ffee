// A copy that reads every stride-th float.
//
// Idea: the 32 loads of a warp are made in pieces of 32 bytes,
// called sectors. At stride 1 the 32 floats are in 4 sectors,
// and every byte loaded is used. At stride 2 they are in 8. From
// stride 8 on each lane needs a sector of its own: 32 sectors
// for 32 floats.
// What limits it: HBM, which moves 32 bytes for each float used.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.

extern "C" __global__ void strided_copy(
    const float* __restrict__ input,  // x [(n - 1) * stride + 1]
    float* __restrict__ output,       // y [n]
    int n, int stride) {
  int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= n) return;
  output[element] = input[(size_t)element * stride];
}
