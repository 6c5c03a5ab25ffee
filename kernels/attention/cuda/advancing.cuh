// Products of flash attention whose descriptors need one addition each.
//
// Of the 64 bits of a descriptor only the low half depends on the tile.
// It is computed once for a tile. The next matrix of the tile adds a
// constant to it. So the tensor cores do not wait for addresses.
// Include it after flash_wgmma.cuh.

namespace advancing {

// Returns the low half of the descriptor of a tile. `outer` as in
// descriptor(), in hopper.cuh.
__device__ inline unsigned low_half(const Half* tile, int outer) {
  return shared_address(tile) >> 4 | (outer >> 4) << 16;
}

// Returns the descriptor of the matrix that begins some elements after
// the beginning of a tile.
__device__ inline unsigned long long matrix(unsigned low_half,
                                            int elements) {
  return (1ull << 62 | 1024ull >> 4 << 32) + (low_half + elements / 8);
}

// Begins S = Q K^T of the warpgroup's rows, one group of products.
__device__ inline void begin_scores(Scores& s, const Half* tile_q,
                                    const Half* tile_k,
                                    int warpgroup) {
  unsigned q = low_half(tile_q + warpgroup * WM * BOX, 0);
  unsigned k = low_half(tile_k, 0);
  begin_products();
#pragma unroll
  for (int i = 0; i < DP; i += 16)
    multiply_scores(s, matrix(q, i / BOX * Br * BOX + i % BOX),
                    matrix(k, i / BOX * Bc * BOX + i % BOX), i > 0);
  close_products();
}

// Begins O += P V, one group of products.
__device__ inline void begin_values(Values& o, Weights& p,
                                    const Half* tile_v) {
  unsigned v = low_half(tile_v, Bc * BOX * 2);
  pin(o), pin(p);
  begin_products();
#pragma unroll
  for (int i = 0; i < Bc; i += 16)
    multiply_values(o, p[i / 16], matrix(v, i * BOX));
  close_products();
}

// Returns the number of the warpgroup of this thread. It is sent to all
// lanes by one of them, so that the compiler knows that it is the same
// and keeps it in a register of the warp.
__device__ inline int this_warpgroup() {
  return __shfl_sync(~0u, threadIdx.x / 128, 0);
}

}  // namespace advancing
