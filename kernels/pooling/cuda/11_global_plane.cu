// Global average pooling, one thread per plane.
//
// Idea: a thread adds all H * W pixels of its plane, one after another.
// What limits it: loads. The lanes of a warp read floats that are
// H * W apart, each from a sector of its own. There are few threads, and
// each has one load in flight.
//
// Launch: grid ceil(planes / BLOCK), block BLOCK.

extern "C" __global__ void __launch_bounds__(BLOCK) global_plane(
    const float* __restrict__ x,  // [planes, area], planes = N * C
    float* __restrict__ y,        // [planes]
    int planes, int area) {       // area = H * W
  int plane = blockIdx.x * BLOCK + threadIdx.x;
  if (plane >= planes) return;
  x += (size_t)plane * area;  // [area]

  float sum = 0.0f;
  for (int pixel = 0; pixel < area; ++pixel) sum += x[pixel];
  y[plane] = sum / area;
}
