"""The transfer programs. What a page shows is this file, and what runs is this file.

`gpu` is a kernels.transfers.gpu.Gpu. Its methods have the names of CuPy's: each is one call of CuPy, and is noted in gpu.ops.
x, y and batches are in the host's memory; w, a, b, c and d are on the GPU before a program begins.
"""


def one_batch(gpu, x, w, y):
    """Copies a batch to the GPU, multiplies it by w, copies the result back: one after the other."""
    d_x = gpu.empty(x.shape)
    d_y = gpu.empty(y.shape)
    d_x.set(x)
    gpu.multiply(d_x, w, d_y)
    d_y.get(out=y)
    del d_x, d_y


def pieces(gpu, x, w, y, n):
    """Does the same in n pieces, so that copies and kernels of different pieces overlap."""
    load, compute, store = gpu.stream("load"), gpu.stream("compute"), gpu.stream("store")
    d_x = gpu.empty(x.shape)
    d_y = gpu.empty(y.shape)
    for rows in gpu.cut(len(x), n):
        d_x[rows].set(x[rows], load)
        compute.wait_event(load.record())
        gpu.multiply(d_x[rows], w, d_y[rows], compute)
        store.wait_event(compute.record())
        d_y[rows].get(store, out=y[rows])
    gpu.synchronize()
    del d_x, d_y


def waiting(gpu, batches, w, y):
    """Trains on one batch after the other: each is copied, then used."""
    d_x = gpu.empty(batches[0].shape)
    d_y = gpu.empty(y.shape)
    for batch in batches:
        d_x.set(batch)
        gpu.multiply(d_x, w, d_y)
    d_y.get(out=y)
    del d_x, d_y


def prefetch(gpu, batches, w, y):
    """Copies the next batch while the GPU computes with the current one."""
    load, compute = gpu.stream("load"), gpu.stream("compute")
    slots = [gpu.empty(batches[0].shape), gpu.empty(batches[0].shape)]
    d_y = gpu.empty(y.shape)
    used = []
    for k, batch in enumerate(batches):
        if k >= 2:
            load.wait_event(used[k - 2])
        slots[k % 2].set(batch, load)
        compute.wait_event(load.record())
        gpu.multiply(slots[k % 2], w, d_y, compute)
        used.append(compute.record())
    d_y.get(compute, out=y)
    gpu.synchronize()
    del slots, d_y


def launches(gpu, a, c, d, y, n):
    """Launches a short kernel n times, one by one."""
    stream = gpu.stream("compute")
    for _ in range(n):
        gpu.add(a, c, d, stream)
        c, d = d, c
    c.get(stream, out=y)
    stream.synchronize()


def graph(gpu, a, c, d, y, n):
    """Launches the same n kernels as one CUDA graph, which was captured before."""
    stream = gpu.stream("compute")
    with gpu.capture(stream) as captured:
        for _ in range(n):
            gpu.add(a, c, d, stream)
            c, d = d, c
    captured.launch(stream)
    c.get(stream, out=y)
    stream.synchronize()


def malloc(gpu, a, b, c, d, y, n):
    """Allocates an array in each step with cudaMalloc and releases it with cudaFree."""
    for _ in range(n):
        s = gpu.malloc(a.shape)
        gpu.add(a, b, s)
        gpu.add(c, s, d)
        c, d = d, c
        del s
    c.get(out=y)


def pool(gpu, a, b, c, d, y, n):
    """Allocates the same arrays from a memory pool, which keeps released memory."""
    for _ in range(n):
        s = gpu.empty(a.shape)
        gpu.add(a, b, s)
        gpu.add(c, s, d)
        c, d = d, c
        del s
    c.get(out=y)


def managed(gpu, x, w, y):
    """Uses unified memory: the driver moves a page when a processor touches it."""
    m_x = gpu.managed(x.shape)
    m_y = gpu.managed(y.shape)
    m_x.write(x)
    gpu.multiply(m_x, w, m_y)
    gpu.synchronize()
    m_y.read(out=y)
    del m_x, m_y


def leak(gpu, batches, w, y):
    """Computes with one batch after the other, and keeps one tensor too many."""
    results = []
    for batch in batches:
        d_x = gpu.empty(batch.shape)
        d_x.set(batch)
        d_y = gpu.empty(y.shape)
        gpu.multiply(d_x, w, d_y)
        d_y.get(out=y)
        results.append(d_y)
        del d_x, d_y
    return results


def no_leak(gpu, batches, w, y):
    """Computes the same, and keeps one number of each batch in place of its tensor."""
    results = []
    for batch in batches:
        d_x = gpu.empty(batch.shape)
        d_x.set(batch)
        d_y = gpu.empty(y.shape)
        gpu.multiply(d_x, w, d_y)
        d_y.get(out=y)
        results.append(float(y[0, 0]))
        del d_x, d_y
    return results
