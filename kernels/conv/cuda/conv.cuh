// The shape of a convolution, and the input pixel of a filter tap. All
// convolution kernels use them.

struct Conv {
  int N, C, H, W;              // images, input channels, rows, columns
  int K, R, S;                 // filters, filter rows, filter columns
  int P, Q;                    // output rows, output columns
  int u, v;                    // vertical stride, horizontal stride
  int pad_h, pad_w;            // zeros around the input, not stored
  int dilation_h, dilation_w;  // distance of neighbouring taps
  int flip;                    // 1: the filter is applied in reverse order
};

// Returns the input pixel under filter tap (r, s) of output pixel
// (p, q). `input_channel` is one channel [H, W]. A pixel in the
// padding is zero.
__device__ inline float input_pixel(const float* input_channel,
                                    const Conv& shape, int p, int q,
                                    int r, int s) {
  if (shape.flip) r = shape.R - 1 - r, s = shape.S - 1 - s;
  int h = p * shape.u - shape.pad_h + r * shape.dilation_h;
  int w = q * shape.v - shape.pad_w + s * shape.dilation_w;
  bool inside = 0 <= h && h < shape.H && 0 <= w && w < shape.W;
  return inside ? input_channel[(size_t)h * shape.W + w] : 0.0f;
}
