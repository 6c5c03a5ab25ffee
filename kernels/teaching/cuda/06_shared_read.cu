// Reading a table in shared memory: broadcast and bank conflicts.
//
// Idea: `share` neighbouring threads read the same word; each
// group reads `stride` words after the group before. All 32 lanes
// on one word (share 32) is a broadcast and takes one pass, as do
// 32 words in 32 banks (stride 1, or any odd stride). At stride 2
// two words meet in each bank: two passes; at stride 32 all 32
// do. What limits it: the passes through shared memory.
//
// Launch: grid (ceil(n / 256)), block 256.

const int WORDS = 1024;  // of the table

extern "C" __global__ void shared_read(
    const float* __restrict__ x,  // [1024]
    float* __restrict__ y,        // [n]
    int n, int share, int stride) {
  __shared__ float table[WORDS];
  for (int w = threadIdx.x; w < WORDS; w += blockDim.x)
    table[w] = x[w];
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = table[threadIdx.x / share * stride % WORDS];
}
