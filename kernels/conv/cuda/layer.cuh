// What may be asked of a convolution beside its extents: groups,
// bias, ReLU.

struct Layer {
  int groups;  // each has C / groups maps, K / groups filters
  int bias;    // 1: b[k] is added to map k of the output
  int relu;    // 1: what is below 0 after that becomes 0
};

// An output of filter k from its sum. NaN stays NaN.
__device__ inline float finished(float sum, const float* b, int k,
                                 const Layer& l) {
  if (l.bias) sum += b[k];
  return l.relu && sum < 0.0f ? 0.0f : sum;
}
