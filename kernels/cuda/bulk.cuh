// Copies of contiguous bytes by the copy engine of Hopper (PTX ISA,
// "cp.async.bulk"). hopper.cuh has its mbarriers.

#include "hopper.cuh"

// Begins to copy `bytes` contiguous bytes to shared memory, a multiple
// of 16 at multiples of 16. The barrier counts them. Lines of the L2
// that this fills are the first to be replaced.
__device__ inline void load_bytes(void* to, const void* from, int bytes,
                                  Barrier* barrier) {
  asm volatile(
      "{\n.reg .b64 first;\n"
      "createpolicy.fractional.L2::evict_first.b64 first, 1.0;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1], %2, [%3], first;\n}" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
