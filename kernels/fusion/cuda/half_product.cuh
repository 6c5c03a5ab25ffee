// What fused FP16 convolutions on the tensor cores share: all but the
// blocks after the convolution. Channels are the last dimension (NHWC).
// A ring of stages feeds wgmma as in conv/42_half_im2col.cu: the copy
// engine goes from window to window by itself (im2col mode).

#include "../../conv/cuda/half_ring.cuh"
#include "fusion.cuh"

// Shared memory of a block. ADDS is the number of tensors that are
// added to the sums.
template <int ADDS>
struct Ring {
  Half* tiles;            // [STAGES][BM, BK] and [BN, BK]
  Half* addends;          // [ADDS][BN / 64][BM, 64], rows swizzled
  Barrier *full, *empty;  // [STAGES]
  Barrier* addends_full;  // if ADDS > 0
  float* params;          // [...][BN], of the block's filters

  __device__ Ring(char* shared) {
    tiles = (Half*)shared;
    addends = tiles + STAGES * STAGE;
    full = (Barrier*)(addends + ADDS * BM * BN);
    empty = full + STAGES;
    addends_full = empty + STAGES;
    params = (float*)(addends_full + 1);
  }

  // Makes the barriers. Afterwards all threads may use them, and what
  // threads wrote to `params`.
  __device__ void begin() const {
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < STAGES; ++stage) {
        init_barrier(full + stage, 1);
        init_barrier(empty + stage, CONSUMERS);
      }
      if (ADDS > 0) init_barrier(addends_full, 1);
      publish_barriers();
    }
    __syncthreads();
  }
};

// Returns whether this thread begins all loads of the block.
__device__ inline bool is_producer() {
  return threadIdx.x == 32 * PRODUCER;
}

// Returns the steps of the sum: 64 channels of a filter tap each.
__device__ inline int steps_of(const Conv& shape) {
  return shape.R * shape.S * ((shape.C + BK - 1) / BK);
}

// Begins to copy BK channels of BM pixels: those under the tap
// (tap_h, tap_w) of the windows that begin at (h, w) of image n.
__device__ inline void load_windows_at(void* to,
                                       const TensorMap* map, int c,
                                       int w, int h, int n, int tap_w,
                                       int tap_h, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col"
      ".mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(
          shared_address(to)),
      "l"(map), "r"(c), "r"(w), "r"(h), "r"(n),
      "r"(shared_address(barrier)), "h"((unsigned short)tap_w),
      "h"((unsigned short)tap_h)
      : "memory");
}

// Loads all tiles of the sum into the ring, stage after stage.
template <int ADDS>
__device__ inline void load_tiles(const TensorMap* x,
                                  const TensorMap* w,
                                  const Ring<ADDS>& ring,
                                  const Conv& shape) {
  OutputPixel first = output_pixel(blockIdx.y * BM, shape);
  int window_h = first.p * shape.u - shape.pad_h;
  int window_w = first.q * shape.v - shape.pad_w;
  int stage = 0, parity = 0;
  Step at = {};
  for (int step = 0; step < steps_of(shape); ++step) {
    Half* tile_a = ring.tiles + stage * STAGE;
    Barrier* full = ring.full + stage;
    wait(ring.empty + stage, parity ^ 1);  // at first all are empty
    arrive_expecting(full, STAGE * 2);
    load_windows_at(tile_a, x, at.c, window_w, window_h, first.n,
                    tap_column(at.s, shape), tap_row(at.r, shape),
                    full);
    load_filters(tile_a + BM * BK, w, at.c, at.r * shape.S + at.s,
                 blockIdx.x * BN, full);
    advance(at, BK, shape);
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
}

// Loads the block's tile of a tensor z [N*P*Q, K] that is added.
template <int ADDS>
__device__ inline void load_addend(const TensorMap* z, int number,
                                   const Ring<ADDS>& ring) {
  if (number == 0)
    arrive_expecting(ring.addends_full, ADDS * BM * BN * 2);
  Half* to = ring.addends + number * BM * BN;
#pragma unroll
  for (int col = 0; col < BN; col += 64)
    load_box(to + col * BM, z, blockIdx.x * BN + col, blockIdx.y * BM,
             ring.addends_full);
}

// Returns the place of a thread's sums `eight` in boxes [BM, 64]: of
// the first two, or of the two that are 8 rows below.
__device__ inline int place(int eight, int below) {
  int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * below;
  int swizzled = (eight % 8 ^ row % 8) * 8;
  return (eight / 8 * BM + row) * 64 + swizzled + threadIdx.x % 4 * 2;
}

// Returns the block's filter, 0 .. BN - 1, of a thread's sum j.
__device__ inline int column_of(int eight, int j) {
  return eight * 8 + threadIdx.x % 4 * 2 + j % 2;
}

// Reads what is added to a thread's four sums.
__device__ inline void read_four(float (&v)[4], const Half* boxes,
                                 int eight) {
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    unsigned both = *(const unsigned*)&boxes[place(eight, j / 2)];
    Half low = both & 0xFFFF, high = both >> 16;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v[j]) : "h"(low));
    asm("cvt.f32.f16 %0, %1;" : "=f"(v[j + 1]) : "h"(high));
  }
}

// Rounds a thread's four results to FP16 and writes them to boxes.
__device__ inline void write_four(Half* boxes, const float (&v)[4],
                                  int eight) {
  *(unsigned*)&boxes[place(eight, 0)] = pair(v[0], v[1]);
  *(unsigned*)&boxes[place(eight, 1)] = pair(v[2], v[3]);
}

// Stores the boxes [BN / 64][BM, 64] of all consumers to y [N*P*Q, K].
__device__ inline void store_boxes(const TensorMap* y,
                                   const Half* boxes) {
  publish_writes();
  consumers_barrier();  // the boxes are complete
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int col = 0; col < BN; col += 64)
    store_box(y, blockIdx.x * BN + col, blockIdx.y * BM,
              boxes + col * BM);
  close_stores();
  wait_stores_read<0>();
}
