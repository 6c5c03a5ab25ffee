"""The layout of what machine code reads and writes. A record, all it knows of an instruction, is RECORD numbers of 64 bits.

Operand n (0 is the result) is an address and the bytes from one warp to the next: 0 for a constant, which all warps share.
"""

LANES, RECORD = 32, 28
# Address of the handler; of the guard's row or 0, and -1 if the guard is negated.
HANDLER, GUARD, FLIP = 0, 1, 2
OPERANDS = 3  # up to 8, with two numbers each
VALUE, COUNTS, SPACE = 19, 20, 21  # bytes added to an address; address of an access's counts; address of a space
KIND, CHECK = 22, 23
TIME, RACE = 24, 25  # when an access is noted; address of what is known of a space's races
FROM, ROOM = (
    26,
    27,
)  # the first byte of its block's shared memory that an access may reach, and how many bytes further it may start
TARGET = VALUE  # of a branch
# What the results are checked for, as bits: NaN or infinity made of other numbers, a signed 32-bit number that wraps.
NAN, INFINITY, WRAPS = 1, 2, 4
# Kinds. A leader is executed too, but lanes may join there. At an end the lanes end. NumPy executes what stops, and a barrier that some
# threads of a block have not reached.
EXECUTED, LEADER, BRANCH, STOP, END, BARRIER = range(6)
QUIET = VALUE  # of a barrier: whether it is known that threads ended before it

# The state: addresses of records, of the lanes' counters (int32), of the pending lanes of each warp (uint32), of warps and lanes by
# instruction that a range of instructions began or ended with (int64, two each), of divergent branches (int64), of marks at
# instructions where lanes have stopped (bytes); branches back that a warp may take, and barriers that a block may pass; the counter of
# lanes that have ended.
# Of blocks: addresses of the rows of each (int64), of the lanes that exist and that are live (uint32, a row each); warps of a block.
# For races: addresses of what is known of two spaces or 0, the first time, times from one barrier to the next, the floor at the
# beginning; after the run the most barriers that a block has passed, and the lowest floor.
RECORDS, COUNTERS, PENDING, ISSUED, DIVERGED, MARKS, TURNS, ENDED = range(8)
ROWS, EXIST, LIVE, WARPS = range(8, 12)
RACES_OF, FIRST_TIME, TIMES, FLOOR_BEFORE, PASSED, FLOOR_AFTER = 12, 14, 15, 16, 17, 18
STATE = 19

# What is known of the races of a space, for reads, writes and updates in this order: addresses of who accessed a word last, when, and
# of both before (int32, one a word); the latest time of each; whether a word has several; whether any may come without an order before
# what is done now, and the same when a block begins. Then the addresses of the bytes that mark words as read (one a word), of those that mark lines of LINE bytes that may
# be written, and what `order` knows: the floor in this space, its times by row and warp of the block and the warps of a block, the warp in
# the grid of each row and the first one of its block (int64). Last, whether every read is noted, whether a barrier of a block orders
# all accesses to the space that matter to it, what is added to the times of accesses, and whether NumPy has to compare writes with more
# reads than the last two of a word.
READS, WRITES, UPDATES = range(3)
KINDS, LATEST, SEVERAL, NEEDED = 0, 12, 15, 18
NEEDED_BEFORE = 21
MARKED, WRITABLE, FLOOR, UNTIL, WARPS_OF_BLOCK, WARPS_OF_ROWS, FIRST_WARPS, ALL_NOTED, BY_BLOCK, EPOCH = range(24, 34)
MORE_READS = 34
RACES = 35
LINE_BITS = 8  # buffers of global memory start at such lines
