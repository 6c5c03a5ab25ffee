// FP32 multiply-adds on registers and nothing else: the roof of
// arithmetic.
//
// Idea: an answer takes a few cycles, while another multiply-add
// could start in each. So a thread keeps CHAINS values that do not
// wait for one another, and many warps stand by. What limits it: the
// number of FP32 units and their clock. Memory is written once, at
// the end, so that nothing can be left out.
//
// Launch: any grid, any block. CHAINS is a define.

extern "C" __global__ void fma_chains(
    float* __restrict__ out,  // [threads]
    float a, float b, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x[CHAINS];
#pragma unroll
  for (int j = 0; j < CHAINS; ++j) x[j] = i % 1024 + j;
#pragma unroll 16
  for (int t = 0; t < rounds; ++t)
#pragma unroll
    for (int j = 0; j < CHAINS; ++j) x[j] = fmaf(a, x[j], b);

  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < CHAINS; ++j) sum += x[j];
  out[i] = sum;
}
