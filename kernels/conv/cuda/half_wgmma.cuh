// What the FP16 convolutions with wgmma share: copies of boxes with
// four dimensions, products of two matrices whose rows are along k,
// and the store of a tile by the copy engine.

#include "../../cuda/hopper.cuh"
#include "half.cuh"

constexpr int BK = 64;              // channels: a row has 128 bytes
constexpr int CONSUMERS = BM / 64;  // warpgroups
constexpr int PRODUCER = 4 * CONSUMERS;  // the warp after theirs
constexpr int THREADS = 128 * CONSUMERS + 32;
// Blocks that share an SM: their threads need BN / 2 registers for
// sums and about 40 others.
constexpr int ROOM = 65536 / THREADS / (BN / 2 + 40);
constexpr int RESIDENT = ROOM > 0 ? ROOM : 1;

// -- copies -------------------------------------------------------
// Begins to copy `BK` channels from `c` on of one filter tap: a box
// [BN, 1, BK] of the filters [K, R * S, C].
__device__ inline void load_filters(void* to, const TensorMap* map,
                                    int c, int tap, int filter,
                                    Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
      "l"(map), "r"(c), "r"(tap), "r"(filter),
      "r"(shared_address(barrier))
      : "memory");
}

// Begins to copy BK channels of a box of the input, from channel `c`
// of pixel (h, w) of image n on.
__device__ inline void load_pixels(void* to, const TensorMap* map,
                                   int c, int w, int h, int n,
                                   Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(to)),
      "l"(map), "r"(c), "r"(w), "r"(h), "r"(n),
      "r"(shared_address(barrier))
      : "memory");
}

// Begins to copy 64 filters of a box of output pixels to the output.
__device__ inline void store_pixels(const TensorMap* map, int filter,
                                    int q, int p, int n,
                                    const void* from) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
      "[%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
      "r"(filter), "r"(q), "r"(p), "r"(n), "r"(shared_address(from))
      : "memory");
}

// Waits until all threads of all consumers arrive.
__device__ inline void consumers_barrier() {
  asm volatile("bar.sync 1, %0;" ::"n"(128 * CONSUMERS) : "memory");
}

// -- products -----------------------------------------------------
// sum [64, N] = a [64, 16] x b^T [16, N], plus sum if `add` is not 0.
// As multiply() of hopper.cuh, but rows of b, too, are along k.
__device__ inline void multiply_rows(float (&sum)[8][4],
                                     unsigned long long a,
                                     unsigned long long b, int add) {
  asm volatile(
      "{\n.reg .pred add;\n"
      "setp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, add, 1, 1, 0, 0;\n}"
      : SUMS_32(sum, 0)
      : "l"(a), "l"(b), "r"(add));
}

__device__ inline void multiply_rows(float (&sum)[16][4],
                                     unsigned long long a,
                                     unsigned long long b, int add) {
  asm volatile(
      "{\n.reg .pred add;\n"
      "setp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "
      "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
      "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, "
      "%57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, add, 1, 1, 0, 0;\n}"
      : SUMS_32(sum, 0), SUMS_32(sum, 8)
      : "l"(a), "l"(b), "r"(add));
}

__device__ inline void multiply_rows(float (&sum)[32][4],
                                     unsigned long long a,
                                     unsigned long long b, int add) {
  asm volatile(
      "{\n.reg .pred add;\n"
      "setp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "
      "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
      "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, "
      "%57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, "
      "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, "
      "%79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, "
      "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, "
      "%101, %102, %103, %104, %105, %106, %107, %108, %109, "
      "%110, %111, %112, %113, %114, %115, %116, %117, %118, "
      "%119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, add, 1, 1, 0, 0;\n}"
      : SUMS_32(sum, 0), SUMS_32(sum, 8), SUMS_32(sum, 16),
        SUMS_32(sum, 24)
      : "l"(a), "l"(b), "r"(add));
}

// -- stores -------------------------------------------------------
// Rounds the sums of all consumers to FP16 and writes them to shared
// memory, as boxes [BM, 64] whose rows are swizzled. The tiles there
// are no longer needed. Afterwards one thread may store the boxes.
__device__ inline void write_boxes(const float (&sum)[BN / 8][4],
                                   Half* boxes) {
  int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  int col = threadIdx.x % 4 * 2;
  consumers_barrier();  // all consumers have read the last tiles
#pragma unroll
  for (int j = 0; j < BN / 8; ++j)
#pragma unroll
    for (int both = 0; both < 2; ++both) {  // 8 rows apart
      int swizzle = row % 8 * 8;
      Half* box_row = boxes + (j / 8 * BM + row + both * 8) * 64;
      *(unsigned*)&box_row[(j % 8 * 8 ^ swizzle) + col] =
          pair(sum[j][both * 2], sum[j][both * 2 + 1]);
    }
  publish_writes();
  consumers_barrier();  // the boxes are complete
}
