// All-reduce by a ring: each GPU writes only to the next.
//
// Idea: the array has RANKS chunks. In step 0 a rank writes its chunk
// rank - 1 into the next rank's result. In steps 1 .. RANKS - 2 it adds
// its own numbers to the chunk that has just arrived, and writes the sum
// to the next rank. In step RANKS - 1 chunk `rank` is complete: it is
// stored, and travels round once more, copied in steps RANKS ..
// 2 RANKS - 3. Each block moves its own part of every chunk, SLICE
// elements at a time. It waits for a slice of the step before, so the
// next slice is already on its way.
// What limits it: the links, for a large array. For a small one, its
// 2 (RANKS - 1) steps in a row, each with a flag.
//
// Launch on every GPU: grid any, at most MAX_BLOCKS; block 64 to 1024.

#include "peers.cuh"

// Elements begin .. end - 1 of `to` become those of `a`, plus those of
// `b` if it is there. They are stored in `keep` too if that is there.
__device__ inline void pass_on(Vec* to, Vec* keep, const Vec* a,
                               const Vec* b, int begin, int end) {
  int i = begin + threadIdx.x, stride = blockDim.x;
  for (; i < end; i += UNROLL * stride) {
    Vec v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      int at = i + u * stride;
      if (at < end) v[u] = b ? a[at] + b[at] : a[at];
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      int at = i + u * stride;
      if (at >= end) break;
      to[at] = v[u];
      if (keep) keep[at] = v[u];
    }
  }
}

extern "C" __global__ void __launch_bounds__(512) ring(
    const Vec* in,        // [n], this rank's
    Vec* out,             // [n], this rank's, written by the rank before
    Vec* next_out,        // [n], the next rank's
    unsigned* own,        // [blocks][FLAGS], this rank's flags
    unsigned* next,       // [blocks][FLAGS], of the next rank
    unsigned* previous,   // [blocks][FLAGS], of the rank before
    unsigned* error,      // [1], not 0 after a rank did not come
    int rank, int n, long long patience) {
  unsigned run = next_run(own, error);
  if (run == 0) return;
  int block = blockIdx.x * FLAGS;
  // The largest part of a chunk for one block, and its slices.
  int part = ((n + RANKS - 1) / RANKS + gridDim.x - 1) / gridDim.x;
  int slices = part > SLICE ? (part + SLICE - 1) / SLICE : 1;
  constexpr int STEPS = 2 * (RANKS - 1);
  unsigned before = own[block + READY + 1];  // slices of earlier runs
  __syncthreads();

  // The next rank's result may be overwritten once its kernel runs.
  bool late = false;
  if (threadIdx.x == 0) {
    signal(previous + block + READY, run);
    late = !arrived(own + block + READY, run, patience, error);
  }
  if (__syncthreads_or(late)) return;

  for (int step = 0; step <= STEPS; ++step) {
    int chunk = (rank - 1 - step + 2 * RANKS) % RANKS;
    int start = chunk_begin(chunk, n), length = chunk_begin(chunk + 1, n);
    length -= start;
    for (int slice = 0; slice < slices; ++slice) {
      if (step > 0) {
        if (threadIdx.x == 0) {
          unsigned awaited = before + (step - 1) * slices + slice + 1;
          late = !arrived(own + block + DONE, awaited, patience, error);
        }
        if (__syncthreads_or(late)) return;
      }
      if (step == STEPS) continue;  // the last chunk has arrived
      int begin = blockIdx.x * part + slice * SLICE;
      int end = min(min(begin + SLICE, (int)(blockIdx.x + 1) * part), length);
      begin += start, end += start;
      if (step == 0)
        pass_on(next_out, nullptr, in, nullptr, begin, end);
      else if (step < RANKS - 1)
        pass_on(next_out, nullptr, out, in, begin, end);
      else if (step == RANKS - 1)
        pass_on(next_out, out, out, in, begin, end);
      else
        pass_on(next_out, nullptr, out, nullptr, begin, end);
      __syncthreads();  // all threads have written the slice
      if (threadIdx.x == 32)
        signal(next + block + DONE, before + step * slices + slice + 1);
    }
  }
  if (threadIdx.x == 0) own[block + READY + 1] = before + STEPS * slices;
}
