// Gradient of the filters as an implicit matrix product, with the sum
// split over many blocks that add by atomics.
//
// Idea: the gradient [K / groups, C / groups * R * S] has few elements,
// and each is a sum over N*P*Q output pixels. With one block per tile,
// most SMs would have no work. So the sum is cut into parts of `terms`
// output pixels. Each block computes one tile of one part and adds it
// to the gradient by atomics. The gradient must be 0 before the launch.
// What limits it: four bytes per copy, as in every implicit product.
// All parts of a tile add to the same addresses, in an order that
// changes from run to run. So do the last bits of the result.
//
// Launch: grid (ceil(C / groups * R * S / BN), ceil(K / groups / BM),
// groups * parts), block (BM / TM) * (BN / TN); dynamic shared memory
// for STAGES tiles. BM, BN, BK, TM, TN and STAGES are defines.

#include "dweight.cuh"

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) dweight_atomics(
    const float* __restrict__ input,            // x [N, C, H, W]
    const float* __restrict__ output_gradient,  // dy [N, K, P, Q]
    float* __restrict__ filter_gradient,  // dw [K, C / groups, R, S]
    Conv shape, Layer layer, Divisors divisors, int terms) {
  extern __shared__ __align__(16) float stages[];
  int parts = gridDim.z / layer.groups;
  int group = blockIdx.z / parts, part = blockIdx.z % parts;
  int group_C = shape.C / layer.groups;  // channels of one group
  int rows = shape.K / layer.groups;     // filters of one group
  int columns = group_C * shape.R * shape.S;
  int first_term = part * terms;
  int end_term = min(first_term + terms, shape.N * shape.P * shape.Q);
  input += (size_t)group * group_C * shape.H * shape.W;
  output_gradient += (size_t)group * rows * shape.P * shape.Q;
  filter_gradient += (size_t)group * rows * columns;

  float sum[TM][TN] = {};
  correlate(sum, stages, input, output_gradient, shape, rows, columns,
            divisors, first_term, end_term);
  for_each_sum<1>(rows, columns, [&](int row, int column, int i, int j) {
    atomicAdd(&filter_gradient[(size_t)row * columns + column],
              sum[i][j]);
  });
}
