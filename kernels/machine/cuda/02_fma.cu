// FP32 multiply-adds on registers and nothing else: the peak rate of
// arithmetic.
//
// Idea: a result needs a few cycles, but another multiply-add could
// start in each cycle. So a thread computes CHAINS values that do not
// depend on each other, and many warps are ready to run.
// What limits it: the number of FP32 units and their clock. The result
// is written to memory once, at the end. Without that the compiler
// would remove the computation.
//
// Launch: any grid, any block. CHAINS is a define.

extern "C" __global__ void fma_chains(
    float* __restrict__ out,  // [threads]
    float a, float b, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float chain[CHAINS];
#pragma unroll
  for (int j = 0; j < CHAINS; ++j) chain[j] = i % 1024 + j;
#pragma unroll 16
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int j = 0; j < CHAINS; ++j) chain[j] = fmaf(a, chain[j], b);

  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < CHAINS; ++j) sum += chain[j];
  out[i] = sum;
}
