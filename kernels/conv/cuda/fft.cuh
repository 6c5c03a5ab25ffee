// How conv/fft cuts the padded input into transforms: `down` by
// `across` of them over an image, each rows x columns, which share
// rows and columns with their neighbours. One transform over the
// whole image is the cut with down = across = 1.

struct Cut {
  int rows, columns;   // of one transform
  int step_h, step_w;  // dense output rows, columns that it gives
  int down, across;    // transforms over one image
};
