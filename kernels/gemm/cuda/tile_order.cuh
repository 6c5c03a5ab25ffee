// The order in which blocks compute the tiles of C.

// Where a tile is, counted in tiles.
struct TilePosition {
  int row, col;
};

// The position of a tile by its number. The order goes down `group`
// rows of tiles before it goes one column to the right.
__device__ inline TilePosition tile_position(int tile, int rows,
                                             int cols, int group) {
  int first_row = tile / (group * cols) * group;
  int group_rows = min(rows - first_row, group);
  tile -= first_row * cols;
  return {first_row + tile % group_rows, tile / group_rows};
}
