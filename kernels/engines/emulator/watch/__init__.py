"""The build of a kernel for watching: compiled with -G, so that each C++ variable has a place at each instruction."""
