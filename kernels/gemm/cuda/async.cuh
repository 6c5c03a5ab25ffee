// cp.async: copies from global to shared memory that pass by the
// registers and go on while the thread works (PTX ISA, "cp.async").

// Begin to copy BYTES (4, 8 or 16, and both places aligned to them).
// Where `inside` is false nothing is read and zeros are written.
template <int BYTES>
__device__ inline void copy_async(void* to, const void* from,
                                  bool inside) {
  unsigned at = (unsigned)__cvta_generic_to_shared(to);
  if (BYTES == 16)  // cg: past the L1 cache as well
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(at), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :: "r"(at), "l"(from), "n"(BYTES),
                    "r"(inside ? BYTES : 0)
                 : "memory");
}

// Begin to copy four floats of a row, of which `left` still belong to
// the matrix; zeros stand for the others. If WHOLE all four do, and
// `from` lies on 16 bytes.
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

// What was begun since the last call is one group.
__device__ inline void close_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Wait until all but this thread's newest PENDING groups are there.
template <int PENDING>
__device__ inline void wait_groups() {
  asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
}
