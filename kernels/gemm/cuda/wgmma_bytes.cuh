// What the kernels for 8-bit numbers on Hopper share: tiles of int8
// or FP8 (e4m3), their products, and how a warpgroup stores its sums.
// FP8 is a define: 1 for e4m3, 0 for int8.

#include "wgmma.cuh"

#if FP8
typedef float Sum;
#else
typedef int Sum;
#endif

// A row of a tile: 128 numbers along k. A [M, K] and B [N, K] are both
// stored along k, and a tile of either is one box [ROWS, 128].
constexpr int ROW = 128;  // bytes

// The part of a tile that one product reads, from a row and from k of
// the tile on:
__device__ inline unsigned long long part_of(const char* tile, int row,
                                             int k) {
  return descriptor((const Half*)(tile + row * ROW + k), 0);
}

#if FP8
#define REGISTER "+f"
#define TYPES "f32.e4m3.e4m3"
#define SIGNS ", 1, 1"  // of a and b
#else
#define REGISTER "+r"
#define TYPES "s32.s8.s8"
#define SIGNS ""  // int8 has no such operands
#endif
#define IN_4(sum, j)                                    \
  REGISTER(sum[j][0]), REGISTER(sum[j][1]),             \
      REGISTER(sum[j][2]), REGISTER(sum[j][3])
#define IN_32(sum, j)                                  \
  IN_4(sum, j), IN_4(sum, j + 1), IN_4(sum, j + 2),    \
      IN_4(sum, j + 3), IN_4(sum, j + 4),              \
      IN_4(sum, j + 5), IN_4(sum, j + 6), IN_4(sum, j + 7)
#define NAMES_32 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, " \
  "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, " \
  "%26, %27, %28, %29, %30, %31}"
#define NAMES_64 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, " \
  "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, " \
  "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
  "%62, %63}"
#define NAMES_128 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, " \
  "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, " \
  "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
  "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, " \
  "%74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
  "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, " \
  "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, " \
  "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, " \
  "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"

// sum [64, N] = a [64, 32] x b [N, 32] transposed, plus sum if `add` is
// not 0. The sums are in the lanes as those of 16-bit products are.
#define MULTIPLY(N, NAMES, A, B, ADD, ...)                       \
  __device__ inline void multiply_bytes(                         \
      Sum (&sum)[N / 8][4], unsigned long long a,                \
      unsigned long long b, int add) {                           \
    asm volatile(                                                \
        "{\n.reg .pred add;\n"                                   \
        "setp.ne.b32 add, " ADD ", 0;\n"                         \
        "wgmma.mma_async.sync.aligned.m64n" #N "k32." TYPES " "  \
        NAMES ", " A ", " B ", add" SIGNS ";\n}"                 \
        : __VA_ARGS__                                            \
        : "l"(a), "l"(b), "r"(add));                             \
  }

MULTIPLY(64, NAMES_32, "%32", "%33", "%34", IN_32(sum, 0))
MULTIPLY(128, NAMES_64, "%64", "%65", "%66", IN_32(sum, 0),
         IN_32(sum, 8))
MULTIPLY(256, NAMES_128, "%128", "%129", "%130", IN_32(sum, 0),
         IN_32(sum, 8), IN_32(sum, 16), IN_32(sum, 24))

// Two neighbours of a row, stored at once.
struct alignas(8) Neighbours {
  Sum left, right;
};

// Stores sums [64, COLS] of a warpgroup from (row, col) of C [M, N] on,
// through shared memory, as boxes of 32 columns. The copy engine writes
// a box while the warpgroup prepares the next one. It leaves out
// elements outside C. `boxes` [2][64, 32] are swizzled as the map of C
// says.
template <int COLS>
__device__ inline void store_boxes(const Sum (&sum)[COLS / 8][4],
                                   const TensorMap* C, Sum* boxes,
                                   int row, int col, int warpgroup) {
  int lane_row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  int lane_col = threadIdx.x % 4 * 2;
#pragma unroll
  for (int part = 0; part < COLS / 32; ++part) {
    Sum* box = boxes + part % 2 * 64 * 32;
    if (threadIdx.x % 128 == 0) wait_stores_read<1>();
    warpgroup_barrier(warpgroup);  // the box can be overwritten
#pragma unroll
    for (int pair = 0; pair < 2; ++pair)  // 8 rows apart
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        int box_row = lane_row + pair * 8, box_col = lane_col + j * 8;
        int swizzle = box_row % 8 * 4;
        *(Neighbours*)&box[box_row * 32 + (box_col ^ swizzle)] = {
            sum[part * 4 + j][pair * 2],
            sum[part * 4 + j][pair * 2 + 1]};
      }
    publish_writes();
    warpgroup_barrier(warpgroup);  // the box is complete
    if (threadIdx.x % 128 == 0) {
      store_box(C, col + part * 32, row, box);
      close_stores();
    }
  }
}
