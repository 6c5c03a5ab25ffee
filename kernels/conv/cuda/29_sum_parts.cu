// Sum of the parts of a gradient: the second reduction.
//
// Idea: each thread adds the parts of one element, from the first to
// the last. Neighbouring threads load neighbouring floats. The order is
// fixed, so every run gives the same bits.
// What limits it: memory traffic. Each part is read once, mostly from
// the L2 cache, because the launch before has just written it.
//
// Launch: grid ceil(count / BLOCK), block BLOCK. BLOCK is a define.

extern "C" __global__ void __launch_bounds__(BLOCK) sum_parts(
    const float* __restrict__ parts,  // [part_count, count]
    float* __restrict__ result,       // [count]
    int count, int part_count) {
  int element = blockIdx.x * BLOCK + threadIdx.x;
  if (element >= count) return;
  float sum = 0.0f;
#pragma unroll 8
  for (int part = 0; part < part_count; ++part)
    sum += parts[(size_t)part * count + element];
  result[element] = sum;
}
