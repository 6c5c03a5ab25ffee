// The gradient of an embedding in two launches, the first: runs.
//
// Idea: a block has ROWS neighbours in sorted order, whatever their
// tokens are. So all blocks have equal work. A run is the neighbours
// of one token within the block. If it is the whole token, its sum is
// a row of the result. Else the sum is a part, stored where the run
// begins. 16 bytes a load if d is a multiple of 4.
// What limits it: HBM: dy is read once.
//
// Launch: grid ceil(M / ROWS), block BLOCK. BLOCK and ROWS are defines.

// Adds four floats, or one.
__device__ inline float4& operator+=(float4& a, float4 b) {
  a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
  return a;
}

// The sums of all runs, column by column. A column is a float4 or a
// float: `columns` of them are a row.
template <class COLUMN>
__device__ inline void sum_columns(
    const COLUMN* dy, COLUMN* parts, COLUMN* dtable, int columns,
    const int (&row)[ROWS], const int (&token)[ROWS + 1],
    const bool (&is_whole)[ROWS]) {
  for (int column = threadIdx.x; column < columns; column += BLOCK) {
    COLUMN values[ROWS];  // all loads before the first addition
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
      if (token[i] >= 0)
        values[i] = dy[(size_t)row[i] * columns + column];
    COLUMN sum = {};
    int head = 0;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      if (token[i] < 0) break;
      sum += values[i];
      if (token[i + 1] == token[i]) continue;  // the run goes on
      if (is_whole[head])
        dtable[(size_t)token[i] * columns + column] = sum;
      else
        parts[((size_t)blockIdx.x * ROWS + head) * columns + column] =
            sum;
      sum = {};
      head = i + 1;
    }
  }
}

extern "C" __global__ void __launch_bounds__(BLOCK) sum_runs(
    const int* __restrict__ tokens,  // [M], each in 0 .. V - 1
    const float* __restrict__ dy,    // [M, d]
    const int* __restrict__ order,   // [M]
    const int* __restrict__ first,   // [V]
    const int* __restrict__ totals,  // [V]
    float* __restrict__ parts,       // [M, d]
    float* __restrict__ dtable,      // [V, d]
    int M, int d) {
  __shared__ int row[ROWS], token[ROWS + 1];  // -1 after the last
  __shared__ bool is_whole[ROWS];  // the run that begins here
  int start = blockIdx.x * ROWS, rows = min(ROWS, M - start);
  for (int i = threadIdx.x; i <= ROWS; i += BLOCK) {
    int m = i < rows ? order[start + i] : 0;
    token[i] = i < rows ? tokens[m] : -1;
    if (i == ROWS) continue;
    row[i] = m;
    is_whole[i] = i < rows && first[token[i]] == start + i &&
                  totals[token[i]] <= rows - i;
  }
  __syncthreads();
  if (d % 4 == 0)
    sum_columns((const float4*)dy, (float4*)parts, (float4*)dtable,
                d / 4, row, token, is_whole);
  else
    sum_columns(dy, parts, dtable, d, row, token, is_whole);
}
