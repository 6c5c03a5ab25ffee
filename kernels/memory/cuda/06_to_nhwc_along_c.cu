// NCHW to NHWC with threads along c: the loads are scattered.
//
// Idea: the two addresses are those of to_nhwc. Only the assignment
// of elements to threads differs. Neighbouring threads own
// neighbouring c. A warp writes neighbouring floats and reads floats
// that are H*W floats apart.
// What limits it: the loads, one sector per channel if H*W is 8 or
// more. A load can find its sector in the L1, loaded before by
// another warp. A store always goes to the L2.
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
  int nchw_index = ((n * C + c) * H + h) * W + w;
  int nhwc_index = ((n * H + h) * W + w) * C + c;
  y[nhwc_index] = x[nchw_index];
}
