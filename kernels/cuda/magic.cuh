// Division by a number that is known before the launch, without a
// division (kernels/model/fast_division.py proves it). The GPU has no
// instruction that divides integers: `/` becomes about twenty instructions.

struct Magic {
  unsigned multiplier;
  int shift;
};

// Returns dividend / divisor for 0 <= dividend < 2^31. `divisor` holds
// the multiplier and the shift of the number to divide by.
__device__ inline int divide(int dividend, const Magic& divisor) {
  return __umulhi((unsigned)dividend << 1, divisor.multiplier) >>
         divisor.shift;
}
