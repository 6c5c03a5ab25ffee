// What a layer has beside its shape: groups, bias and ReLU.

struct Layer {
  int groups;  // each has C / groups channels, K / groups filters
  int bias;    // 1: bias[k] is added to output channel k
  int relu;    // 1: negative outputs become 0
};

// Returns the output of filter k: its sum, plus bias, after ReLU. NaN
// stays NaN.
__device__ inline float apply_bias_relu(float sum, const float* bias,
                                        int k, const Layer& layer) {
  if (layer.bias) sum += bias[k];
  return layer.relu && sum < 0.0f ? 0.0f : sum;
}
