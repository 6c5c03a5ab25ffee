// A copy through an array of indices: a gather.
//
// Idea: the data decide where each lane reads. A warp loads its
// indices in 4 sectors. The floats at these indices can be in up
// to 32 sectors.
// What limits it: HBM moves 32 bytes for each 4 bytes used. The
// second load cannot start before the first has finished.
//
// Launch: grid (ceil(n / BLOCK)), block BLOCK.

extern "C" __global__ void scattered_copy(
    const float* __restrict__ input,  // [m]
    const int* __restrict__ indices,  // [n], each in 0 .. m-1
    float* __restrict__ output,       // [n]
    int n, int m) {
  int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= n) return;
  int index = indices[element];
  output[element] =
      0 <= index && index < m ? input[index] : 0.0f;
}
