// Instructions of Hopper that CUDA C++ has no function for, each
// under a name (PTX ISA, "mbarrier", "cp.async.bulk.tensor" and
// "wgmma"). Compiled for sm_90a.

// 16 bits of fp16 or bf16. Kernels only copy them; the instruction
// tells the tensor core which of the two they are.
typedef unsigned short Half;

#if BF16
#define AB_TYPE "bf16"
#else
#define AB_TYPE "f16"
#endif

// A tensor map: the address, extents and strides of a matrix, and the
// box that one copy moves. The host writes its 128 bytes.
struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};

__device__ inline unsigned shared_address(const void* pointer) {
  return (unsigned)__cvta_generic_to_shared(pointer);
}

// -- mbarrier: a barrier in shared memory ------------------------
// It has phases. A phase ends when its arrivals and the bytes that it
// expects have come. Phases have parity 0, 1, 0, 1 ...
typedef unsigned long long Barrier;

// Each phase waits for this number of arrivals.
__device__ inline void init_barrier(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
                   shared_address(barrier)),
               "r"(arrivals));
}

// Makes new barriers visible to the copy engine and the cluster.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(
                   shared_address(barrier))
               : "memory");
}

// Arrives at the same barrier of another block of the cluster.
__device__ inline void arrive_at(Barrier* barrier, unsigned block) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(barrier)),
      "r"(block)
      : "memory");
}

// Arrives. The phase also waits for `bytes` of copies.
__device__ inline void arrive_expecting(Barrier* barrier,
                                        int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
          shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

// Waits until the phase with this parity has ended.
__device__ inline void wait(Barrier* barrier, int parity) {
  asm volatile(
      "{\n.reg .pred ended;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
      "@ended bra DONE;\n"
      "bra AGAIN;\n"
      "DONE:\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// -- TMA: copies of boxes by the copy engine ---------------------
// Begins to copy a box of a matrix to shared memory, from column and
// row on. Elements outside the matrix become zeros. The bytes of the
// whole box are reported to the barrier.
__device__ inline void load_box(void* to, const TensorMap* map,
                                int col, int row,
                                Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(shared_address(to)),
      "l"(map), "r"(col), "r"(row), "r"(shared_address(barrier))
      : "memory");
}

// The same, to the same place of each block of the cluster whose bit
// is set in the mask. Each block's own barrier gets the bytes.
__device__ inline void load_box_to(unsigned short blocks, void* to,
                                   const TensorMap* map, int col,
                                   int row, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
      ".mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(map), "r"(col), "r"(row), "r"(shared_address(barrier)),
      "h"(blocks)
      : "memory");
}

// Begins to copy a box from shared memory to a matrix. Elements
// outside the matrix are not written.
__device__ inline void store_box(const TensorMap* map, int col,
                                 int row, const void* from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group "
      "[%0, {%1, %2}], [%3];" ::"l"(map),
      "r"(col), "r"(row), "r"(shared_address(from))
      : "memory");
}

// Puts the stores since the last call into one group.
__device__ inline void close_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most PENDING groups of stores of this thread still
// read shared memory, the newest ones.
template <int PENDING>
__device__ inline void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING)
               : "memory");
}

// Makes this thread's writes to shared memory visible to the copy
// engine and to wgmma.
__device__ inline void publish_writes() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Tells the copy engine that a map will be used.
__device__ inline void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// -- clusters -----------------------------------------------------
__device__ inline unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Waits until all threads of the cluster arrive here.
__device__ inline void cluster_barrier() {
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;" ::
          : "memory");
}

// Waits until all 128 threads of a warpgroup arrive. Barrier 0 is that
// of __syncthreads().
__device__ inline void warpgroup_barrier(int warpgroup) {
  asm volatile("bar.sync %0, 128;" ::"r"(1 + warpgroup) : "memory");
}

// -- registers ----------------------------------------------------
// Each thread of this warpgroup may use COUNT registers from here on.
template <int COUNT>
__device__ inline void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// -- wgmma: products of matrices in shared memory ----------------
// A descriptor tells the tensor core where a matrix is. Its rows of
// 128 bytes are swizzled, eight of them to a group of 1,024 bytes.
// `outer`: the bytes from one column of such groups to the next.
__device__ inline unsigned long long descriptor(const Half* matrix,
                                                int outer) {
  unsigned long long address = shared_address(matrix);
  return (address & 0x3FFFF) >> 4 |
         (unsigned long long)(outer >> 4) << 16 |
         (unsigned long long)(1024 >> 4) << 32 | 1ull << 62;
}

// Before products: orders the accesses of registers that precede.
__device__ inline void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Puts the products since the last call into one group.
__device__ inline void close_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most PENDING groups of products are incomplete, the
// newest ones. Only then may their sums be used.
template <int PENDING>
__device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING)
               : "memory");
}

#define SUMS_4(sum, j) \
  "+f"(sum[j][0]), "+f"(sum[j][1]), "+f"(sum[j][2]), "+f"(sum[j][3])
#define SUMS_32(sum, j)                                      \
  SUMS_4(sum, j), SUMS_4(sum, j + 1), SUMS_4(sum, j + 2),    \
      SUMS_4(sum, j + 3), SUMS_4(sum, j + 4),                \
      SUMS_4(sum, j + 5), SUMS_4(sum, j + 6), SUMS_4(sum, j + 7)

// sum [64, N] = a [64, 16] x b [16, N], plus sum if `add` is not 0.
// Begins a product of the whole warpgroup, for N = 64, 128 and 256.
// Rows of a are along k, rows of b along n. Lane l of warp w has rows
// 16 w + l / 4 and 8 below, and of each 8 columns j the columns
// 2 (l % 4) and the next: sum[j] are two of one row and two of the
// row 8 below.
__device__ inline void multiply(float (&sum)[8][4],
                                unsigned long long a,
                                unsigned long long b, int add) {
  asm volatile(
      "{\n.reg .pred add;\n"
      "setp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." AB_TYPE
      "." AB_TYPE " "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, add, 1, 1, 0, 1;\n}"
      : SUMS_32(sum, 0)
      : "l"(a), "l"(b), "r"(add));
}

__device__ inline void multiply(float (&sum)[16][4],
                                unsigned long long a,
                                unsigned long long b, int add) {
  asm volatile(
      "{\n.reg .pred add;\n"
      "setp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." AB_TYPE
      "." AB_TYPE " "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
      "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, "
      "%35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
      "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, "
      "%57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, add, 1, 1, 0, 1;\n}"
      : SUMS_32(sum, 0), SUMS_32(sum, 8)
      : "l"(a), "l"(b), "r"(add));
}

__device__ inline void multiply(float (&sum)[32][4],
                                unsigned long long a,
                                unsigned long long b, int add) {
  asm volatile(
      "{\n.reg .pred add;\n"
      "setp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." AB_TYPE
      "." AB_TYPE " "
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
      "%128, %129, add, 1, 1, 0, 1;\n}"
      : SUMS_32(sum, 0), SUMS_32(sum, 8), SUMS_32(sum, 16),
        SUMS_32(sum, 24)
      : "l"(a), "l"(b), "r"(add));
}
