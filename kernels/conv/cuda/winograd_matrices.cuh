// A^T, G and B^T of F(M, 3), one dimension: M outputs of 3 taps from
// M + 2 inputs. Derived in kernels/conv/winograd_matrices.py from the first M + 1 of
// the points 0, 1, -1, 2, -2, 1/2, -1/2, and infinity, and written
// by `python -m kernels.conv.winograd_matrices`: not edited by hand.

#if M == 2
__device__ constexpr float AT[2][4] = {
    {1, 1, 1, 0},
    {0, 1, -1, 1}};
__device__ constexpr float G[4][3] = {
    {1, 0, 0},
    {1.f/2, 1.f/2, 1.f/2},
    {1.f/2, -1.f/2, 1.f/2},
    {0, 0, 1}};
__device__ constexpr float BT[4][4] = {
    {1, 0, -1, 0},
    {0, 1, 1, 0},
    {0, -1, 1, 0},
    {0, -1, 0, 1}};
#elif M == 4
__device__ constexpr float AT[4][6] = {
    {1, 1, 1, 1, 1, 0},
    {0, 1, -1, 2, -2, 0},
    {0, 1, 1, 4, 4, 0},
    {0, 1, -1, 8, -8, 1}};
__device__ constexpr float G[6][3] = {
    {1.f/4, 0, 0},
    {1.f/6, 1.f/6, 1.f/6},
    {1.f/6, -1.f/6, 1.f/6},
    {1.f/24, 1.f/12, 1.f/6},
    {1.f/24, -1.f/12, 1.f/6},
    {0, 0, 1}};
__device__ constexpr float BT[6][6] = {
    {4, 0, -5, 0, 1, 0},
    {0, 4, 4, -1, -1, 0},
    {0, -4, 4, 1, -1, 0},
    {0, -2, -1, 2, 1, 0},
    {0, 2, -1, -2, 1, 0},
    {0, 4, 0, -5, 0, 1}};
#elif M == 6
__device__ constexpr float AT[6][8] = {
    {1, 1, 1, 1, 1, 1, 1, 0},
    {0, 1, -1, 2, -2, 1.f/2, -1.f/2, 0},
    {0, 1, 1, 4, 4, 1.f/4, 1.f/4, 0},
    {0, 1, -1, 8, -8, 1.f/8, -1.f/8, 0},
    {0, 1, 1, 16, 16, 1.f/16, 1.f/16, 0},
    {0, 1, -1, 32, -32, 1.f/32, -1.f/32, 1}};
__device__ constexpr float G[8][3] = {
    {1, 0, 0},
    {2.f/9, 2.f/9, 2.f/9},
    {2.f/9, -2.f/9, 2.f/9},
    {1.f/90, 1.f/45, 2.f/45},
    {1.f/90, -1.f/45, 2.f/45},
    {32.f/45, 16.f/45, 8.f/45},
    {32.f/45, -16.f/45, 8.f/45},
    {0, 0, 1}};
__device__ constexpr float BT[8][8] = {
    {1, 0, -21.f/4, 0, 21.f/4, 0, -1, 0},
    {0, -1, -1, 17.f/4, 17.f/4, -1, -1, 0},
    {0, 1, -1, -17.f/4, 17.f/4, 1, -1, 0},
    {0, 1.f/2, 1.f/4, -5.f/2, -5.f/4, 2, 1, 0},
    {0, -1.f/2, 1.f/4, 5.f/2, -5.f/4, -2, 1, 0},
    {0, 2, 4, -5.f/2, -5, 1.f/2, 1, 0},
    {0, -2, 4, 5.f/2, -5, -1.f/2, 1, 0},
    {0, -1, 0, 21.f/4, 0, -21.f/4, 0, 1}};
#endif
