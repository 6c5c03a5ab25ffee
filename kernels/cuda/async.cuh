// cp.async: copies from global to shared memory (PTX ISA,
// "cp.async"). The data does not go through registers. The thread
// continues while the copy runs.

// Begins to copy BYTES bytes: 4, 8 or 16. Both addresses are
// multiples of BYTES. If `inside` is false, nothing is read and
// zeros are written.
template <int BYTES>
__device__ inline void copy_async(void* to, const void* from,
                                  bool inside) {
  unsigned to_shared = (unsigned)__cvta_generic_to_shared(to);
  if (BYTES == 16)  // cg: the copy does not use the L1 cache either
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to_shared), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :: "r"(to_shared), "l"(from), "n"(BYTES),
                    "r"(inside ? BYTES : 0)
                 : "memory");
}

// Begins to copy four floats of a row. The first `left` of them
// lie in the matrix; zeros are written for the others. If WHOLE, all
// four lie in it, and `from` is a multiple of 16 bytes.
template <bool WHOLE>
__device__ inline void copy4_async(float* to, const float* from,
                                   int left) {
  if (WHOLE) {
    copy_async<16>(to, from, true);
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j)
    copy_async<4>(to + j, from + j, j < left);
}

// Puts all copies since the last call into one group.
__device__ inline void close_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most PENDING groups of this thread are incomplete,
// the newest ones.
template <int PENDING>
__device__ inline void wait_groups() {
  asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
}
