// Two branches: divergence inside a warp.
//
// Idea: even elements take one branch, odd elements the other. Both
// branches are a loop of multiply-adds. Without GROUPED thread i takes
// element i, so each warp has lanes in both branches. With GROUPED 1
// the first warp of two takes the even elements, the second the odd
// ones: all lanes of a warp agree.
// What limits it: a warp executes one instruction at a time. If its
// lanes disagree, it runs both branches, one after the other, and in
// each only half of its lanes are active. GROUPED 1 pays for that with
// loads of every second float.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK. GROUPED is a define.

extern "C" __global__ void branch(
    const float* __restrict__ x,  // [n]
    float* __restrict__ y,        // [n]
    int n, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (GROUPED) i = i / 64 * 64 + i % 32 * 2 + i / 32 % 2;
  if (i >= n) return;
  float value = x[i];
  float sum = 0;
  if (i % 2 == 0) {
#pragma unroll 1
    for (int k = 0; k < rounds; ++k)
      sum = sum * 0.5f + value;
  } else {
#pragma unroll 1
    for (int k = 0; k < rounds; ++k)
      sum = sum * 0.25f - value;
  }
  y[i] = sum;
}
