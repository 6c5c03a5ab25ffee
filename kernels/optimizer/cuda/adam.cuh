// The update of Adam (arXiv 1412.6980), as in PyTorch.
//
// m and v are running averages of the gradient and of its square. They
// began as 0, so they are too small at first. `rate` is the learning
// rate over 1 - beta1^t, `root` is 1 / sqrt(1 - beta2^t): the host
// computes both once for all elements.

struct Adam {
  float rate;
  float keep1, add1;  // beta1 and 1 - beta1
  float keep2, add2;  // beta2 and 1 - beta2
  float root, eps, weight_decay;
};

// Updates one weight w and its averages m and v.
__device__ inline void update(float& w, float g, float& m, float& v,
                              const Adam& by) {
  g += by.weight_decay * w;
  m = by.keep1 * m + by.add1 * g;
  v = by.keep2 * v + by.add2 * (g * g);
  w -= by.rate * (m / (sqrtf(v) * by.root + by.eps));
}
