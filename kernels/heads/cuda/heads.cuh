// The places of a number in rows [N, T, PARTS, h, d] and in heads
// [N, h, T, d], one tensor for each part.

#include "../../cuda/magic.cuh"

struct Heads {
  int T, h, d;
  Magic by_T, by_h, by_d;  // to divide by them (magic.cuh)
};

struct Place {
  int part;
  size_t offset;  // in the tensor of the part
};

// Returns the place in heads of element i of the rows.
__device__ inline Place in_heads(int i, const Heads& shape) {
  int run = divide(i, shape.by_d);  // d neighbours stay together
  int dim = i - run * shape.d;
  int part_of_token = divide(run, shape.by_h);
  int head = run - part_of_token * shape.h;
  int token = part_of_token / PARTS;  // of all sequences
  int sequence = divide(token, shape.by_T);
  int t = token - sequence * shape.T;
  size_t row = ((size_t)sequence * shape.h + head) * shape.T + t;
  return {part_of_token % PARTS, row * shape.d + dim};
}
