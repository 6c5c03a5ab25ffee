// Reading a table in shared memory: broadcast and bank conflicts.
//
// Idea: `share` neighbouring threads read the same word. Each
// group reads `stride` words after the group before. With share
// 32 all lanes read one word: a broadcast, one wavefront. With
// stride 1, or any odd stride, 32 words are in 32 banks: also
// one wavefront. At stride 2 two words are in each bank: two
// wavefronts. At stride 32 all words are in one bank: 32.
// What limits it: the wavefronts of shared memory.
//
// Launch: grid (ceil(n / 256)), block 256.

const int WORDS = 1024;  // of the table

extern "C" __global__ void shared_read(
    const float* __restrict__ input,  // [1024]
    float* __restrict__ output,       // [n]
    int n, int share, int stride) {
  __shared__ float table[WORDS];
  for (int word = threadIdx.x; word < WORDS; word += blockDim.x)
    table[word] = input[word];
  __syncthreads();
  int element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= n) return;
  output[element] = table[threadIdx.x / share * stride % WORDS];
}
