// An empty kernel: what remains is the launch.
//
// Idea: to start a kernel and to see its end costs the same for every
// kernel. An empty kernel has no other cost.
// What limits it: the GPU's front end, which starts one launch after
// another.
//
// Launch: grid 1, block 32.

extern "C" __global__ void empty() {}
