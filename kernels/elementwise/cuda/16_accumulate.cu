// Adds a gradient to one that is already there: db += da.
//
// Idea: one thread per element. A tensor that was used twice gets two
// gradients, and their sum is its gradient. So db is read, added to and
// written back.
// What limits it: HBM. 12 bytes are moved for one addition.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

extern "C" __global__ void __launch_bounds__(BLOCK) accumulate(
    const float* __restrict__ da,  // [count]
    float* __restrict__ db,        // [count], read and written
    int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  db[i] += da[i];
}
