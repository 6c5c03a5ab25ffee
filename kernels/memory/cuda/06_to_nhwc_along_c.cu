// NCHW to NHWC with threads along c: the reads are scattered.
//
// Idea: the two addresses are those of to_nhwc; only who computes
// which changes. Neighbouring threads own neighbouring c: a warp
// writes floats side by side and reads them H*W floats apart.
// What limits it: the loads, one sector for each channel where
// H*W is 8 or more. A load can find its sector in the L1, where
// another warp's load has left it; a store goes on to the L2.
//
// Launch: grid (ceil(N*C*H*W / BLOCK)), block BLOCK.

extern "C" __global__ void to_nhwc_along_c(
    const float* __restrict__ x,  // [N, C, H, W]
    float* __restrict__ y,        // [N, H, W, C]
    int N, int C, int H, int W) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= N * C * H * W) return;
  int c = i % C;
  int w = i / C % W;
  int h = i / (C * W) % H;
  int n = i / (C * W * H);
  int from = ((n * C + c) * H + h) * W + w;
  int to = ((n * H + h) * W + w) * C + c;
  y[to] = x[from];
}
