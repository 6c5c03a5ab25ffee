"""Whole programs: a file with main(), run without a GPU. Its host code is compiled as device code and runs as one thread of the
emulator; its calls of CUDA's runtime, kernel launches among them, are carried out in the same memory."""
