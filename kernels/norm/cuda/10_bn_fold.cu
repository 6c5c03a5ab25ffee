// Folds batch norm in inference into one scale and one shift a channel.
//
// Idea: gamma * (x - mean) / std + beta = scale * x + shift, with
// scale = gamma / std and shift = beta - mean * scale. Both depend on
// the channel alone. A convolution before the norm can even take them
// into its filters and bias.
// What limits it: the launch. It computes 2 C numbers.
//
// Launch: grid ceil(C / BLOCK), block BLOCK.

extern "C" __global__ void __launch_bounds__(BLOCK) bn_fold(
    const float* __restrict__ gamma,  // [C]
    const float* __restrict__ beta,   // [C]
    const float* __restrict__ mean,   // [C]
    const float* __restrict__ var,    // [C]
    float* __restrict__ folded,       // [2, C]: scale, shift
    int C, float eps) {
  int channel = blockIdx.x * BLOCK + threadIdx.x;
  if (channel >= C) return;
  float scale = gamma[channel] / sqrtf(var[channel] + eps);
  folded[channel] = scale;
  folded[C + channel] = beta[channel] - mean[channel] * scale;
}
