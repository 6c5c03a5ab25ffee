// Direct convolution from shared memory, several outputs per thread.
//
// Idea: a block computes TILE x TILE output pixels of one image, for a
// few filters of one group. It loads the input patch under these
// pixels and the filter taps into shared memory, CHUNK channels at a
// time. A thread computes TP pixels for TK filters. For each tap it
// loads TP + TK floats and does TP * TK multiply-adds with them.
// What limits it: sizes that do not match the tile. Patches of
// neighbouring blocks overlap. A 7 x 7 output fills a fifth of a
// 16 x 16 tile. A group with fewer filters than TK leaves sums unused.
//
// Launch: grid (ceil(P / TILE) * ceil(Q / TILE),
// groups * ceil(K / groups / (TK * z)), N), block (TILE, TILE / TP,
// z); dynamic shared memory for CHUNK channels of the patch and their
// taps. TILE, TK, TP and CHUNK are defines.

#include "conv.cuh"
#include "layer.cuh"

// Rows of threads. Also the distance of a thread's pixels.
constexpr int ROWS = TILE / TP;

// Floats from one tap to the next in shared memory: one for each
// filter of the block, and 4 more against bank conflicts.
__device__ inline int tap_pitch() { return blockDim.z * TK + 4; }

// Loads `channels` channels of the patch, from `input` on. Its first
// pixel is (first_h, first_w). Pixels in the padding become zero.
__device__ inline void load_patch(float* patch, const float* input,
                                  const Conv& shape, int channels,
                                  int first_h, int first_w,
                                  int patch_rows, int patch_cols) {
  int thread_row = threadIdx.z * ROWS + threadIdx.y;
  for (int c = 0; c < channels;
       ++c, input += (size_t)shape.H * shape.W)
    for (int row = thread_row; row < patch_rows;
         row += ROWS * blockDim.z)
      for (int col = threadIdx.x; col < patch_cols; col += TILE) {
        int h = first_h + row, w = first_w + col;
        bool inside = 0 <= h && h < shape.H && 0 <= w && w < shape.W;
        float value = inside ? input[(size_t)h * shape.W + w] : 0.0f;
        patch[(c * patch_rows + row) * patch_cols + col] = value;
      }
}

// Loads the taps of `channels` channels for the filters of the block.
// `filters` is the first of them, `filters_left` is how many exist,
// and `filter_stride` is the distance of two in floats. Taps of other
// filters become zero. A flipped filter is stored in reverse order.
__device__ inline void load_taps(float* taps, const float* filters,
                                 const Conv& shape, int channels,
                                 int filters_left,
                                 size_t filter_stride) {
  int filter_area = shape.R * shape.S;
  int taps_per_filter = channels * filter_area;
  int thread =
      (threadIdx.z * ROWS + threadIdx.y) * TILE + threadIdx.x;
  int threads = TILE * ROWS * blockDim.z;
  int count = blockDim.z * TK * taps_per_filter;
  for (int i = thread; i < count; i += threads) {
    int k = i / taps_per_filter, source_tap = i % taps_per_filter;
    int target_tap = source_tap;
    if (shape.flip)
      target_tap += filter_area - 1 - 2 * (source_tap % filter_area);
    taps[target_tap * tap_pitch() + k] =
        k < filters_left ? filters[k * filter_stride + source_tap]
                         : 0.0f;
  }
}

// Copies one tap of the thread's TK filters to registers, by 16 bytes
// if the taps are aligned.
__device__ inline void read_taps(float (&filter_taps)[TK],
                                 const float* taps) {
#pragma unroll
  for (int k = 0; k < TK; ++k) {
    if (TK % 4 == 0 && k % 4 == 0)
      *(float4*)&filter_taps[k] = *(const float4*)&taps[k];
    if (TK % 4) filter_taps[k] = taps[k];
  }
}

extern "C" __global__ void
__launch_bounds__(256, 2) direct_tiled(
    const float* __restrict__ input,    // x [N, C, H, W]
    const float* __restrict__ filters,  // w [K, C / groups, R, S]
    const float* __restrict__ bias,     // b [K], or unused
    float* __restrict__ output,         // y [N, K, P, Q]
    Conv shape, Layer layer) {
  extern __shared__ __align__(16) float shared[];
  int group_C = shape.C / layer.groups;  // channels of one group
  int group_K = shape.K / layer.groups;  // filters of one group
  int patch_rows =
      (TILE - 1) * shape.u + (shape.R - 1) * shape.dilation_h + 1;
  int patch_cols =
      (TILE - 1) * shape.v + (shape.S - 1) * shape.dilation_w + 1;
  float* taps = shared;  // [CHUNK, R, S, tap_pitch]
  float* patch =         // [CHUNK, patch_rows, patch_cols]
      taps + min(CHUNK, group_C) * shape.R * shape.S * tap_pitch();

  int tiles_across = (shape.Q + TILE - 1) / TILE;
  int p = blockIdx.x / tiles_across * TILE + threadIdx.y;  // first row
  int q = blockIdx.x % tiles_across * TILE + threadIdx.x;
  int blocks_per_group = gridDim.y / layer.groups;
  int group = blockIdx.y / blocks_per_group, n = blockIdx.z;
  // First filter of the block within its group, and of the thread
  // within its block.
  int block_k = blockIdx.y % blocks_per_group * blockDim.z * TK;
  int thread_k = threadIdx.z * TK;
  input +=
      ((size_t)n * shape.C + (size_t)group * group_C) * shape.H * shape.W;
  filters +=
      (size_t)(group * group_K + block_k) * group_C * shape.R * shape.S;

  float sum[TP][TK] = {};
  for (int chunk = 0; chunk < group_C; chunk += CHUNK) {
    int channels = min(CHUNK, group_C - chunk);
    load_patch(patch, input + (size_t)chunk * shape.H * shape.W, shape,
               channels,
               (p - (int)threadIdx.y) * shape.u - shape.pad_h,
               (q - (int)threadIdx.x) * shape.v - shape.pad_w,
               patch_rows, patch_cols);
    load_taps(taps, filters + (size_t)chunk * shape.R * shape.S, shape,
              channels, group_K - block_k,
              (size_t)group_C * shape.R * shape.S);
    __syncthreads();
    float chunk_sum[TP][TK] = {};  // short sums lose fewer bits
    const float* thread_taps = taps + thread_k;
    for (int c = 0; c < channels; ++c)
      for (int r = 0; r < shape.R; ++r)
        for (int s = 0; s < shape.S;
             ++s, thread_taps += tap_pitch()) {
          const float* pixels = patch + s * shape.dilation_w +
              threadIdx.x * shape.v + patch_cols * (c * patch_rows +
              r * shape.dilation_h + threadIdx.y * shape.u);
          __align__(16) float filter_taps[TK];
          read_taps(filter_taps, thread_taps);
#pragma unroll
          for (int i = 0; i < TP; ++i) {
            float pixel = pixels[i * ROWS * shape.u * patch_cols];
#pragma unroll
            for (int k = 0; k < TK; ++k)
              chunk_sum[i][k] += pixel * filter_taps[k];
          }
        }
#pragma unroll
    for (int i = 0; i < TP; ++i)
#pragma unroll
      for (int k = 0; k < TK; ++k) sum[i][k] += chunk_sum[i][k];
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < TP; ++i)
#pragma unroll
    for (int k = 0; k < TK; ++k) {
      int output_row = p + i * ROWS;
      int filter = block_k + thread_k + k;
      if (output_row >= shape.P || q >= shape.Q || filter >= group_K)
        continue;
      filter += group * group_K;
      output[(((size_t)n * shape.K + filter) * shape.P + output_row) *
                 shape.Q + q] =
          apply_bias_relu(sum[i][k], bias, filter, layer);
    }
}
