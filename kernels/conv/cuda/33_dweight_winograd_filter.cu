// Winograd for the gradient of the filters, the last step:
// dw = G^T Z G for every filter and map.
//
// Idea: the forward pass began with G g G^T. Its gradient goes back
// through the same matrix. One thread adds the parts of the T*T sums
// of one filter and one map, and makes 3 x 3 taps of them.
// What limits it: memory traffic: it reads parts * T*T floats for 9.
//
// Launch: grid ceil(K * C / BLOCK), block BLOCK, a define like M.

#include "winograd_back.cuh"

extern "C" __global__ void
__launch_bounds__(BLOCK) dweight_winograd_filter(
    const float* __restrict__ Z,  // [parts, T*T, K, C]
    float* __restrict__ filters,  // dw [K, C, 3, 3]
    Conv shape, int parts) {
  int filter = blockIdx.x * BLOCK + threadIdx.x;
  int count = shape.K * shape.C;
  if (filter >= count) return;

  float z[T][T] = {}, taps[3][3];
  for (int part = 0; part < parts; ++part)
#pragma unroll
    for (int position = 0; position < T * T; ++position)
      z[position / T][position % T] +=
          Z[((size_t)part * T * T + position) * count + filter];
  transform_back_2d(G, z, taps);
  filters += (size_t)filter * 9;
#pragma unroll
  for (int tap = 0; tap < 9; ++tap)
    filters[shape.flip ? 8 - tap : tap] = taps[tap / 3][tap % 3];
}
