// Gradient of the filters as an implicit matrix product, with the sum
// split over many blocks that store their parts.
//
// Idea: the gradient [K / groups, C / groups * R * S] has few elements,
// and each is a sum over N*P*Q output pixels. With one block per tile,
// most SMs would have no work. So the sum is cut into parts of `terms`
// output pixels. Each block computes one tile of one part and stores it
// in the part's own array. 29_sum_parts.cu adds the parts in a fixed
// order, so every run gives the same bits.
// What limits it: four bytes per copy, as in every implicit product.
// The parts are written to memory and read once.
//
// Launch: grid (ceil(C / groups * R * S / BN), ceil(K / groups / BM),
// groups * parts), block (BM / TM) * (BN / TN); dynamic shared memory
// for STAGES tiles. BM, BN, BK, TM, TN and STAGES are defines.

#include "dweight.cuh"

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) dweight_implicit_gemm(
    const float* __restrict__ input,            // x [N, C, H, W]
    const float* __restrict__ output_gradient,  // dy [N, K, P, Q]
    float* __restrict__ part_gradients,  // [parts, K, C / groups, R, S]
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
  part_gradients +=
      ((size_t)part * shape.K + (size_t)group * rows) * columns;

  float sum[TM][TN] = {};
  correlate(sum, stages, input, output_gradient, shape, rows, columns,
            divisors, first_term, end_term);
  if (columns % 4 == 0)
    for_each_sum<4>(rows, columns, [&](int row, int column, int i, int j) {
      float4 four = {sum[i][j], sum[i][j + 1], sum[i][j + 2],
                     sum[i][j + 3]};
      *(float4*)&part_gradients[(size_t)row * columns + column] = four;
    });
  else
    for_each_sum<1>(rows, columns, [&](int row, int column, int i, int j) {
      part_gradients[(size_t)row * columns + column] = sum[i][j];
    });
}
