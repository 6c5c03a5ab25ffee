// Winograd for the gradient of the input, the filters: U = G g G^T.
//
// Idea: with stride 1 the gradient of the input is a convolution of dy.
// Its filters are those of the forward pass turned by 180 degrees, and
// maps and filters change places. So all that follows is the forward
// kernels. This one reads w [K, C, 3, 3] where it lies: for one k the
// taps of 32 maps are contiguous. A block copies 8 such rows to shared
// memory. 289 floats a row, an odd number, put equal taps of the rows
// in different banks.
// What limits it: memory traffic. It writes T*T floats for 9.
//
// Launch: grid (ceil(round_up_4(C) / 32), ceil(K / 8)), block 256.

#include "winograd.cuh"

constexpr int MAPS = 32, FILTERS = 8;  // of a block
constexpr int THREADS = MAPS * FILTERS;

// `shape` is that of the convolution of dy: its C is the K of the
// forward pass, and its K the C.
extern "C" __global__ void __launch_bounds__(THREADS) dinput_winograd_filter(
    const float* __restrict__ filters,  // w [C, K, 3, 3]
    float* __restrict__ U,              // [T*T, C, round_up_4(K)]
    Conv shape) {
  __shared__ float taps[FILTERS][MAPS * 9 + 1];
  int block_k = blockIdx.x * MAPS, block_c = blockIdx.y * FILTERS;
  for (int i = threadIdx.x; i < FILTERS * MAPS * 9; i += THREADS) {
    int c = i / (MAPS * 9), tap = i % (MAPS * 9);
    bool inside = block_c + c < shape.C && block_k + tap / 9 < shape.K;
    size_t filter = (size_t)(block_c + c) * shape.K + block_k;
    taps[c][tap] = inside ? filters[filter * 9 + tap] : 0.0f;
  }
  __syncthreads();

  int k = threadIdx.x % MAPS, c = threadIdx.x / MAPS;
  float g[3][3], u[T][T];
#pragma unroll
  for (int i = 0; i < 9; ++i)
    g[i / 3][i % 3] = taps[c][k * 9 + (shape.flip ? i : 8 - i)];
  transform_2d(G, g, u);
  if (block_k + k >= round_up_4(shape.K) || block_c + c >= shape.C) return;
  U += (size_t)(block_c + c) * round_up_4(shape.K) + block_k + k;
#pragma unroll
  for (int position = 0; position < T * T; ++position)
    U[(size_t)position * shape.C * round_up_4(shape.K)] =
        u[position / T][position % T];
}
