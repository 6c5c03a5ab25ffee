"""The layout of what machine code reads and writes. A record, all it knows of an instruction, is RECORD numbers of 64 bits.

Operand n (0 is the result) is an address and the bytes from one warp to the next: 0 for a constant, which all warps share.
"""

LANES, RECORD = 32, 24
# Address of the handler; of the guard's row or 0, and -1 if the guard is negated.
HANDLER, GUARD, FLIP = 0, 1, 2
OPERANDS = 3  # up to 8, with two numbers each
VALUE, COUNTS, SPACE = 19, 20, 21  # bytes added to an address; address of an access's counts; address of a space
KIND, CHECK = 22, 23
TARGET = VALUE  # of a branch
# What the results are checked for, as bits: NaN or infinity made of other numbers, a signed 32-bit number that wraps.
NAN, INFINITY, WRAPS = 1, 2, 4
# Kinds. A leader is executed too, but lanes may join there. At an end the lanes end. NumPy executes what stops.
EXECUTED, LEADER, BRANCH, STOP, END = range(5)

# The state: addresses of records, of the lanes' counters (int32), of the pending lanes of each warp (uint32), of warps and lanes by
# instruction that a range of instructions began or ended with (int64, two each), of divergent branches (int64), of marks at
# instructions where lanes have stopped (bytes); branches back that a warp may take; the counter of lanes
# that have ended.
RECORDS, COUNTERS, PENDING, ISSUED, DIVERGED, MARKS, TURNS, ENDED = range(8)
