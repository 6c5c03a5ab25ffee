// The gradient of an embedding without atomics: a block per token.
//
// Idea: in sorted order the rows of a token are neighbours. A block
// adds its token's rows of dy, a thread per column, in the order of m.
// A token that does not occur gets zeros. Every row of the table's
// gradient is written once, and the sums are the same in every run.
// What limits it: the most frequent token: one block adds all its
// rows.
//
// Launch: grid V, block BLOCK. BLOCK is a define.

extern "C" __global__ void __launch_bounds__(BLOCK) sum_tokens(
    const float* __restrict__ dy,    // [M, d]
    const int* __restrict__ order,   // [M]
    const int* __restrict__ first,   // [V]
    const int* __restrict__ totals,  // [V]
    float* __restrict__ dtable,      // [V, d]
    int d) {
  int token = blockIdx.x, start = first[token];
  int end = start + totals[token];
  dtable += (size_t)token * d;  // [d]
  for (int column = threadIdx.x; column < d; column += BLOCK) {
    float sum = 0.0f;
    for (int i = start; i < end; ++i)
      sum += dy[(size_t)order[i] * d + column];
    dtable[column] = sum;
  }
}
