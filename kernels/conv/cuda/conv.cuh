// What every kernel of this ladder is told about the convolution,
// and the one address rule they share.

struct Conv {
  int N, C, H, W;              // images, input maps, rows, columns
  int K, R, S;                 // filters, filter rows, columns
  int P, Q;                    // output rows, columns
  int u, v;                    // stride, vertical and horizontal
  int pad_h, pad_w;            // zeros around the input, not stored
  int dilation_h, dilation_w;  // distance of neighbouring taps
  int flip;                    // 1: the filter is read back to front
};

// The input pixel under filter tap (r, t) of output pixel (p, q) in
// one map [H, W]; zero in the padding.
__device__ inline float tap(const float* map, const Conv& s,
                            int p, int q, int r, int t) {
  if (s.flip) r = s.R - 1 - r, t = s.S - 1 - t;
  int h = p * s.u - s.pad_h + r * s.dilation_h;
  int w = q * s.v - s.pad_w + t * s.dilation_w;
  bool inside = 0 <= h && h < s.H && 0 <= w && w < s.W;
  return inside ? map[(size_t)h * s.W + w] : 0.0f;
}
