// P and dS from S and dP, each in the other's place: one block per
// query.
//
// Idea: the forward pass saved L, the logarithm of the sum of a row's
// exponentials. So P = exp(S - L) needs no maximum and no sum. The
// gradient of the scores is dS = P * (dP - D). It is multiplied with
// the factor of the scores here, once for both products that use it.
// If causal, keys after the query are hidden: P and dS are 0 there.
// What limits it: memory traffic. Two N x N matrices are read and
// written.
//
// Launch: grid rows, block BLOCK; rows is B*H*N. BLOCK is a define.

#include "attention.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) softmax_gradient(
    const float* __restrict__ L,  // [B*H, N]
    const float* __restrict__ D,  // [B*H, N]
    float* __restrict__ P,        // [B*H, N, N], S before
    float* __restrict__ dS,       // [B*H, N, N], dP before
    int N, float scale, int causal) {
  int row = blockIdx.x;  // of all heads
  int keys = visible_keys(row % N, N, causal);
  P += (size_t)row * N, dS += (size_t)row * N;
  float row_l = L[row], row_d = D[row];

  for (int key = threadIdx.x; key < N; key += BLOCK) {
    float p = 0.0f, ds = 0.0f;
    if (key < keys) {
      p = expf(P[key] - row_l);
      ds = scale * p * (dS[key] - row_d);
    }
    P[key] = p, dS[key] = ds;
  }
}
