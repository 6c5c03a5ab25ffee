// Sorting tokens, third launch: counts become positions in a token.
//
// Idea: a thread has one token. It goes through the chunks and stores,
// for each, the sum of the counts before it. What remains is the total
// of the token.
// What limits it: memory: all counts are read and written once.
//
// Launch: grid ceil(V / BLOCK), block BLOCK. BLOCK is a define.

extern "C" __global__ void __launch_bounds__(BLOCK) chunk_totals(
    const int* __restrict__ counts,  // [chunks, V]
    int* __restrict__ earlier,       // [chunks, V]
    int* __restrict__ totals,        // [V]
    int chunks, int V) {
  int token = blockIdx.x * BLOCK + threadIdx.x;
  if (token >= V) return;
  int total = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    size_t i = (size_t)chunk * V + token;
    earlier[i] = total;
    total += counts[i];
  }
  totals[token] = total;
}
