// The gradient of an embedding in two launches, the second: the rest.
//
// Idea: a block has one token. If the token does not occur, its row
// becomes 0. If its rows were in one block of the first launch, the
// row is ready. Else the block adds the parts in their order: the
// first begins where the token begins, the others every ROWS
// positions.
// What limits it: the zeros of all tokens that do not occur.
//
// Launch: grid V, block BLOCK. BLOCK and ROWS are defines.

extern "C" __global__ void __launch_bounds__(BLOCK) join_runs(
    const float* __restrict__ parts,  // [M, d]
    const int* __restrict__ first,    // [V]
    const int* __restrict__ totals,   // [V]
    float* __restrict__ dtable,       // [V, d]
    int d) {
  int token = blockIdx.x, start = first[token], total = totals[token];
  int last = start + total - 1;
  if (total > 0 && start / ROWS == last / ROWS) return;
  dtable += (size_t)token * d;  // [d]
  if (total == 0 && d % 4 == 0) {
    for (int four = threadIdx.x; four < d / 4; four += BLOCK)
      ((float4*)dtable)[four] = float4{};
    return;
  }
  for (int column = threadIdx.x; column < d; column += BLOCK) {
    float sum = total ? parts[(size_t)start * d + column] : 0.0f;
#pragma unroll 8
    for (int i = start / ROWS + 1; i <= last / ROWS; ++i)
      sum += parts[(size_t)i * ROWS * d + column];
    dtable[column] = sum;
  }
}
