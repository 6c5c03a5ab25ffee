// Instructions that CUDA C++ has no word for, each under a name (PTX
// ISA, "ldmatrix" and "mma.sync"). And where a swizzled tile keeps
// what.

#include "async.cuh"

// 16 bits of fp16 or bf16: kernels only move them, and the tensor
// core is told by its instruction what they mean.
typedef unsigned short Half;

#if BF16
#define AB_TYPE "bf16"
#else
#define AB_TYPE "f16"
#endif

// Where element (row, col) lies in a shared tile of rows of COLS
// halves. Each row of 16-byte pieces is turned by an exclusive or
// with its number, so that the same piece of 8 rows, which is what
// ldmatrix reads at a time, lies in all 32 banks once.
template <int COLS>
__device__ inline unsigned swizzled(unsigned row, unsigned col) {
  constexpr unsigned PIECES = COLS / 8 < 8 ? COLS / 8 : 8;
  unsigned turn = row / (8 / PIECES) % PIECES;
  return row * COLS + (col ^ turn * 8);
}

__device__ inline unsigned shared_address(const Half* at) {
  return (unsigned)__cvta_generic_to_shared(at);
}

// Four 8 x 8 matrices into a register each. Lane l gives the address
// of row l % 8 of matrix l / 8 and gets elements 2 (l % 4) and the
// next of row l / 4 of all four.
__device__ inline void load_matrices(unsigned (&r)[4],
                                     const Half* row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
      "{%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(shared_address(row)) : "memory");
}

// The same, and each matrix is transposed on its way.
__device__ inline void load_transposed(unsigned (&r)[4],
                                       const Half* row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
      "{%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(shared_address(row)) : "memory");
}

// c [16, 8] += a [16, 16] x b [16, 8]: 2,048 multiply-adds.
__device__ inline void multiply_add(float (&c)[4],
                                    const unsigned (&a)[4],
                                    unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32." AB_TYPE "." AB_TYPE
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
        "r"(b1));
}
