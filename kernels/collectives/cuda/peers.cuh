// Shared by the collectives: memory of all GPUs, and flags between them.
//
// One kernel runs on each GPU at the same time. Block b of a GPU waits
// only for blocks b of the others. A GPU writes its flags into the memory
// of the GPU that waits, so waiting reads local memory.

// A rank is one GPU. VEC floats are moved at a time: 4 if every chunk
// begins at a multiple of 16 bytes, else 1.
#if VEC == 4
typedef float4 Vec;
__device__ inline Vec operator+(Vec a, Vec b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
#else
typedef float Vec;
#endif

// The same array of every rank.
struct Peers {
  Vec* of[RANKS];
};

// The flags of every rank. Block b of a rank has the words
// b * FLAGS .. (b + 1) * FLAGS - 1 of that rank's flags: first the count
// of its runs, then a word for each rank that signals "ready", then a
// word for each that signals "done".
struct Flags {
  unsigned* of[RANKS];
};
constexpr int READY = 1, DONE = 1 + RANKS, FLAGS = 1 + 2 * RANKS;

// Writes a flag after all writes of this thread, and those that it has
// seen at a barrier. Every GPU then sees them in this order.
__device__ inline void signal(unsigned* flag, unsigned value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value)
               : "memory");
}

// Waits until a flag has reached a value; false after `patience` ticks of
// the clock. A GPU that is missing then ends this kernel with an error:
// it does not hang. Values may pass 2^32.
__device__ inline bool arrived(const unsigned* flag, unsigned value,
                               long long patience, unsigned* error) {
  long long start = clock64();
  for (;;) {
    unsigned seen;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
                 : "=r"(seen)
                 : "l"(flag)
                 : "memory");
    if ((int)(seen - value) >= 0) return true;
    if (clock64() - start > patience) break;
  }
  *error = 1 + blockIdx.x;
  return false;
}

// Signals all other ranks and waits for them: thread r does so for rank
// r. These threads of a warp signal together, so they wait once for the
// writes before. False on all threads of the block if a rank does not
// come, or if `run` is 0. `word` is READY or DONE.
__device__ inline bool meet(const Flags& flags, const unsigned* own,
                            int rank, int word, unsigned run,
                            long long patience, unsigned* error) {
  if (run == 0) return false;
  bool late = false;
  int first = blockIdx.x * FLAGS + word;
  __syncthreads();  // the block's reads and writes come before the signal
  unsigned* to = flags.of[0];
#pragma unroll
  for (int peer = 1; peer < RANKS; ++peer)
    if (threadIdx.x == peer) to = flags.of[peer];
  if (threadIdx.x < RANKS && threadIdx.x != rank) {
    signal(to + first + rank, run);
    late = !arrived(own + first + threadIdx.x, run, patience, error);
  }
  return !__syncthreads_or(late);
}

// Returns the number of this run of the block, the same on every rank,
// and 0 for the whole block after an error. It is never 0 otherwise.
__device__ inline unsigned next_run(unsigned* own, const unsigned* error) {
  unsigned* count = own + blockIdx.x * FLAGS;
  unsigned run = *count + 1;
  run += run == 0;
  if (__syncthreads_or(*error != 0)) return 0;
  if (threadIdx.x == 0) *count = run;
  return run;
}

// The chunk of a rank in an array of n Vecs: the first n % RANKS chunks
// have one more.
__device__ inline int chunk_begin(int chunk, int n) {
  int rest = n % RANKS;
  return chunk * (n / RANKS) + (chunk < rest ? chunk : rest);
}
