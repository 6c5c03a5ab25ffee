// How conv/fft divides a padded image into tiles, one transform for
// each: `down` by `across` tiles of rows x columns. Neighbouring tiles
// overlap. One transform of the whole image has down = across = 1.

struct Tiling {
  int rows, columns;   // of one transform
  int step_h, step_w;  // output rows, columns of one transform, stride 1
  int down, across;    // transforms of one image
};
