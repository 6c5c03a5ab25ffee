// A copy through an array of indices: a gather.
//
// Idea: where each lane reads is decided by data. The indices
// themselves come in 4 sectors a warp; the floats they point at
// lie in as many sectors as chance has it, up to 32. What limits
// it: HBM moves 32 bytes for 4, and the second load cannot start
// before the first has come back.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.

extern "C" __global__ void scattered_copy(
    const float* __restrict__ x,    // [m]
    const int* __restrict__ index,  // [n], each in 0 .. m-1
    float* __restrict__ y,          // [n]
    int n, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int j = index[i];
  y[i] = 0 <= j && j < m ? x[j] : 0.0f;
}
