// NCHW to NHWC: the same tensor in another order, threads along w.
//
// Idea: memory is a line. A tensor of four axes therefore needs an
// order of its axes. In NCHW neighbours in memory differ in w, in
// NHWC in c. In both orders an address is computed in the same way:
// multiply by the extent of the next axis, add its index, repeat.
// Neighbouring threads own neighbouring w. A warp reads neighbouring
// floats and writes floats that are C floats apart.
// What limits it: the stores, one sector per lane if C is 8 or more.
//
// Launch: grid (ceil(N*C*H*W / BLOCK)), block BLOCK.

extern "C" __global__ void to_nhwc(
    const float* __restrict__ x,  // [N, C, H, W]
    float* __restrict__ y,        // [N, H, W, C]
    int N, int C, int H, int W) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N * C * H * W) return;
  int w = i % W;
  int h = i / W % H;
  int c = i / (W * H) % C;
  int n = i / (W * H * C);
  int nchw_index = ((n * C + c) * H + h) * W + w;
  int nhwc_index = ((n * H + h) * W + w) * C + c;
  y[nhwc_index] = x[nchw_index];
}
