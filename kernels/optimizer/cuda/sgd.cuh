// The update of SGD with momentum, as in PyTorch.

struct Sgd {
  float lr, momentum, weight_decay;
};

// Updates one weight w and its running sum v of gradients.
__device__ inline void update(float& w, float g, float& v,
                              const Sgd& by) {
  g += by.weight_decay * w;
  v = by.momentum * v + g;
  w -= by.lr * v;
}
