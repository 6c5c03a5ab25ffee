// Cross-entropy that reads a row once.
//
// Idea: a running sum l belongs to m, the largest number so far
// (Milakov and Gimelshein, arXiv 1805.02867). A thread loads LOADS
// times four floats before it uses the first. They raise m once, l is
// multiplied by exp(old m - new m), and their exponentials are added.
// Rows of any length have 16-byte loads: the few floats before and
// after the multiples of 16 bytes are read one by one.
// What limits it: HBM, as long as there are enough rows. Fewer rows
// than SMs leave SMs without work.
//
// Launch: grid M, block BLOCK, whole warps. BLOCK, LOADS are defines.

#include "cross_entropy.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) online(
    const float* __restrict__ x,     // [M, N]
    const int* __restrict__ labels,  // [M], each in 0 .. N - 1
    float* __restrict__ loss,        // [M]
    float* __restrict__ lse,         // [M]
    int N) {
  __shared__ Running of_warp[WARPS];
  int row = blockIdx.x, thread = threadIdx.x;
  x += (size_t)row * N;  // [N]
  float picked = x[labels[row]];

  int before = floats_before_16(x, N), fours = (N - before) / 4;
  const float4* x4 = (const float4*)(x + before);  // [fours]
  float m = LOWEST, l = 0.0f;
  for (int first = thread; first < fours; first += LOADS * BLOCK) {
    float4 values[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      int four = first + i * BLOCK;
      values[i] = four < fours ? x4[four] : float4{
          -INFINITE, -INFINITE, -INFINITE, -INFINITE};  // adds 0 to l
    }
    float old_m = m;
#pragma unroll
    for (int i = 0; i < LOADS; ++i) m = fmaxf(m, max_of(values[i]));
    l *= __expf(old_m - m);
#pragma unroll
    for (int i = 0; i < LOADS; ++i) l += sum_of_exp(values[i], m);
  }
  Running part = {m, l};
  int others = N - 4 * fours;  // before and after the fours
  for (int i = thread; i < others; i += BLOCK)
    part = merge(part, {x[i < before ? i : i + 4 * fours], 1.0f});
  part = over_block(part, of_warp);

  if (thread == 0) {
    lse[row] = part.m + logf(part.l);
    loss[row] = logf(part.l) - (picked - part.m);
  }
}
