// What the gradient of Winograd's convolution adds: transforms in the
// other direction.

#include "winograd.cuh"

// Y = X^T d X, the transform with X on the other side: gradients go
// back through it.
template <int ROWS, int COLS>
__device__ inline void transform_back_2d(const float (&X)[ROWS][COLS],
                                         const float (&d)[ROWS][ROWS],
                                         float (&Y)[COLS][COLS]) {
  float Xd[COLS][ROWS];  // X^T d
#pragma unroll
  for (int i = 0; i < COLS; ++i)
#pragma unroll
    for (int j = 0; j < ROWS; ++j) {
      bool first = true;
#pragma unroll
      for (int k = 0; k < ROWS; ++k)
        if (X[k][i] != 0) {
          float term = X[k][i] * d[k][j];
          Xd[i][j] = first ? term : Xd[i][j] + term;
          first = false;
        }
    }
#pragma unroll
  for (int i = 0; i < COLS; ++i)
#pragma unroll
    for (int j = 0; j < COLS; ++j) {
      bool first = true;
#pragma unroll
      for (int k = 0; k < ROWS; ++k)
        if (X[k][j] != 0) {
          float term = Xd[i][k] * X[k][j];
          Y[i][j] = first ? term : Y[i][j] + term;
          first = false;
        }
    }
}
