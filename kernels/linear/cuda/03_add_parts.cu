// Adds the parts of sums that were cut along their terms.
//
// Idea: each thread adds the SPLITS parts of one result, in their
// order. So the result is the same in every run. If BIAS is 1, the
// bias of the column is added too.
// What limits it: memory: every part is read once.
//
// Launch: grid ceil(count / BLOCK), block BLOCK. BLOCK, SPLITS and BIAS
// are defines.

extern "C" __global__ void __launch_bounds__(BLOCK) add_parts(
    const float* __restrict__ parts,  // [SPLITS, count]
    const float* __restrict__ bias,   // [cols], read if BIAS is 1
    float* __restrict__ sums,         // [count]
    long long count, int cols) {
  long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  float sum = BIAS ? bias[i % cols] : 0.0f;
#pragma unroll
  for (int split = 0; split < SPLITS; ++split)
    sum += parts[split * count + i];
  sums[i] = sum;
}
