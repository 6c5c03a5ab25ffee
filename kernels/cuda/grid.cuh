// Words in global memory that the blocks of one launch exchange (PTX
// ISA, "Memory Consistency Model"). A kernel that includes this file
// waits for other blocks. All blocks of its launch must therefore run at
// the same time. It is launched as a cooperative kernel, and such a
// launch fails if the grid is too large for the GPU.

// 64 bits. One load or store moves all of them.
typedef unsigned long long Word;

// Returns the newest value of a word that other blocks may store.
__device__ inline Word load_word(const Word* word) {
  Word value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
               : "=l"(value)
               : "l"(word)
               : "memory");
  return value;
}

// Stores a word that other blocks load with load_word.
__device__ inline void store_word(Word* word, Word value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word),
               "l"(value)
               : "memory");
}
