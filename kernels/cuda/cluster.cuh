// Clusters: blocks that run at the same time and reach each other's
// shared memory (PTX ISA, "mapa" and "barrier.cluster"). GPUs of
// compute capability 9.0 and later have them.

// Returns the number of this block in its cluster.
__device__ inline unsigned rank_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Arrives at the barrier of the cluster and goes on. What this thread
// wrote before is visible to all threads after their wait.
__device__ inline void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

// Waits until all threads of the cluster have arrived.
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// Returns the two floats at this address of shared memory, in another
// block of the cluster or in this one. They begin at a multiple of 8
// bytes.
__device__ inline float2 load_from(unsigned block, const void* pointer) {
  unsigned own = (unsigned)__cvta_generic_to_shared(pointer), remote;
  float2 two;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(remote)
               : "r"(own), "r"(block));
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(two.x), "=f"(two.y)
               : "r"(remote)
               : "memory");
  return two;
}
