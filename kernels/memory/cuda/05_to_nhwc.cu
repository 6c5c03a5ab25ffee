// NCHW to NHWC: the same tensor in another order, threads along w.
//
// Idea: memory is a line, so a tensor of four axes needs an order
// in which they are counted. In NCHW w counts fastest, in NHWC c.
// An index (n, c, h, w) becomes an address by the same steps in
// both: times the next axis's extent, plus its index, and so on.
// Neighbouring threads own neighbouring w: a warp reads floats
// side by side and writes them C floats apart.
// What limits it: the stores, one sector for each lane where C is
// 8 or more.
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
  int from = ((n * C + c) * H + h) * W + w;
  int to = ((n * H + h) * W + w) * C + c;
  y[to] = x[from];
}
