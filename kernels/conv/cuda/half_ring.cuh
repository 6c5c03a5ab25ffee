// What the FP16 convolutions share whose ring has tiles of both
// matrices: pixels [BM, BK] and filters [BN, BK].

#include "half_wgmma.cuh"

constexpr int STAGE = (BM + BN) * BK;  // elements of both tiles

// Adds the products of STEPS steps of the sum to the sums of a
// consumer, stage by stage. `tiles` [STAGES][BM, BK] and [BN, BK].
__device__ inline void add_products(float (&sum)[BN / 8][4],
                                    const Half* tiles, Barrier* full,
                                    Barrier* empty, int steps) {
  int group_row = threadIdx.x / 128 * 64;  // of the warpgroup
  int stage = 0, parity = 0;
  int last = 0;  // the stage that is still multiplied
  for (int step = 0; step < steps; ++step) {
    const Half* tile_a = tiles + stage * STAGE + group_row * BK;
    const Half* tile_b = tiles + stage * STAGE + BM * BK;
    wait(full + stage, parity);
    begin_products();
#pragma unroll
    for (int k = 0; k < BK; k += 16)
      multiply_rows(sum, descriptor(tile_a + k, 0),
                    descriptor(tile_b + k, 0), step > 0 || k > 0);
    close_products();
    wait_products<1>();  // the products of the stage before have ended
    if (threadIdx.x % 128 == 0 && step > 0) arrive(empty + last);
    last = stage;
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  wait_products<0>();
}
