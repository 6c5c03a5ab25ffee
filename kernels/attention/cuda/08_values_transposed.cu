// Y = P^T X, tiled through shared memory: dV = P^T dO, dK = dS^T Q.
//
// Idea: a value was used by every query that sees it. So its gradient
// is a sum over queries, with a column of P as weights. A block
// computes TILE x TILE elements of Y, each thread one. It loads tiles
// of P and X by rows, as they are in memory, and reads the tile of P
// by columns. If causal, it begins at the block's first key: earlier
// queries do not see its keys.
// What limits it: two loads from shared memory for each multiply-add,
// and P, which is read back from HBM.
//
// Launch: grid (ceil(d / TILE), ceil(N / TILE), B*H), block
// TILE * TILE. TILE is a define.

extern "C" __global__ void __launch_bounds__(TILE * TILE)
values_transposed(
    const float* __restrict__ P,  // [B*H, N, N]
    const float* __restrict__ X,  // [B*H, N, d]
    float* __restrict__ Y,        // [B*H, N, d]
    int N, int d, int causal) {
  __shared__ float tile_p[TILE][TILE];  // [query][key]
  __shared__ float tile_x[TILE][TILE];
  int thread_row = threadIdx.x / TILE, thread_col = threadIdx.x % TILE;
  int block_key = blockIdx.y * TILE;
  int key = block_key + thread_row, dim = blockIdx.x * TILE + thread_col;
  P += (size_t)blockIdx.z * N * N;
  X += (size_t)blockIdx.z * N * d;

  float sum = 0.0f;
  int first_query = causal ? block_key : 0;
  for (int query_tile = first_query; query_tile < N; query_tile += TILE) {
    int load_query = query_tile + thread_row;
    int load_key = block_key + thread_col;
    bool inside = load_query < N && load_key < N;
    tile_p[thread_row][thread_col] =
        inside ? P[(size_t)load_query * N + load_key] : 0.0f;
    inside = load_query < N && dim < d;
    tile_x[thread_row][thread_col] =
        inside ? X[(size_t)load_query * d + dim] : 0.0f;
    __syncthreads();
    for (int query = 0; query < TILE; ++query)
      sum += tile_p[query][thread_row] * tile_x[query][thread_col];
    __syncthreads();
  }

  if (key < N && dim < d)
    Y[((size_t)blockIdx.z * N + key) * d + dim] = sum;
}
