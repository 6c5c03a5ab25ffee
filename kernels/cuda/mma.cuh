// Tensor core instructions that CUDA C++ has no function for, each
// under a name (PTX ISA, "ldmatrix" and "mma.sync"). And the layout
// of a swizzled tile.

#include "async.cuh"

// 16 bits of fp16 or bf16. Kernels only copy them; the instruction
// tells the tensor core which of the two they are.
typedef unsigned short Half;

#if BF16
#define AB_TYPE "bf16"
#else
#define AB_TYPE "f16"
#endif

// The place of element (row, col) in a shared tile with rows of COLS
// halves. A row consists of 16-byte pieces. Its row number, by
// exclusive or, changes their order. ldmatrix reads the same piece of
// 8 rows at a time. These now lie in all 32 banks, each used once.
template <int COLS>
__device__ inline unsigned swizzled(unsigned row, unsigned col) {
  constexpr unsigned PIECES = COLS / 8 < 8 ? COLS / 8 : 8;
  unsigned swizzle = row / (8 / PIECES) % PIECES;
  return row * COLS + (col ^ swizzle * 8);
}

__device__ inline unsigned shared_address(const Half* element) {
  return (unsigned)__cvta_generic_to_shared(element);
}

// Loads four 8 x 8 matrices, one into each register. Lane l gives the
// address of row l % 8 of matrix l / 8. From row l / 4 of all four
// matrices it gets elements 2 (l % 4) and 2 (l % 4) + 1.
__device__ inline void load_matrices(unsigned (&registers)[4],
                                     const Half* row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
      "{%0, %1, %2, %3}, [%4];"
      : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]),
        "=r"(registers[3])
      : "r"(shared_address(row)) : "memory");
}

// The same, and each matrix is transposed while it is loaded.
__device__ inline void load_transposed(unsigned (&registers)[4],
                                       const Half* row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
      "{%0, %1, %2, %3}, [%4];"
      : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]),
        "=r"(registers[3])
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
