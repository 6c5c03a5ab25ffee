// The gradient of cross-entropy, one thread per element.
//
// Idea: dx = (softmax(x) - onehot(label)) * g[row]. The forward kernel
// saved the log-sum-exp of each row. So softmax(x) = exp(x - lse)
// needs no sum over the row: every element is independent.
// What limits it: each thread loads one float, computes and stores
// one float. Few bytes are under way at any time. The division that
// finds the row costs more than the exponential.
//
// Launch: grid ceil(M * N / BLOCK), block BLOCK. BLOCK is a define.

extern "C" __global__ void __launch_bounds__(BLOCK) gradient(
    const float* __restrict__ x,     // [M, N]
    const int* __restrict__ labels,  // [M], each in 0 .. N - 1
    const float* __restrict__ lse,   // [M]
    const float* __restrict__ g,     // [M]
    float* __restrict__ dx,          // [M, N]
    int M, int N) {
  size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= (size_t)M * N) return;
  int row = i / N, col = i % N;
  float p = expf(x[i] - lse[row]);
  dx[i] = (p - (col == labels[row] ? 1.0f : 0.0f)) * g[row];
}
