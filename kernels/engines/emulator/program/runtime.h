// What host code of a program can call: CUDA's runtime, and the C and C++ libraries as far as NVRTC lacks them. Functions without a body
// are those of runtime.py. The compiler takes all functions as device code.
#pragma once

extern "C" {
void* cudaGetParameterBufferV2(void* kernel, dim3 grid, dim3 block, unsigned shared);
cudaError_t cudaLaunchDeviceV2(void* parameters, cudaStream_t stream);
cudaError_t host_allocate(void** pointer, size_t bytes, int kind);
cudaError_t host_release(void* pointer, int kind);
cudaError_t host_copy(void* to, const void* from, size_t bytes, int kind);
cudaError_t host_fill(void* to, int value, size_t bytes);
cudaError_t host_synchronize();
cudaError_t host_last_error(int clear);
const char* host_error_text(int error, int name);
cudaError_t host_set_device(int device);
cudaError_t host_memory(size_t* free, size_t* total);
cudaError_t host_occupancy(int* blocks, const void* kernel, int threads, size_t shared);
cudaError_t host_allow_shared(const void* kernel, int bytes);
cudaError_t host_failed(cudaError_t error);
void host_exit(int status);
}

enum { HOST_DEVICE, HOST_PINNED, HOST_MANAGED };

template <class T> cudaError_t cudaMalloc(T** p, size_t n) { return host_allocate((void**)p, n, HOST_DEVICE); }
template <class T> cudaError_t cudaMallocHost(T** p, size_t n, unsigned = 0) { return host_allocate((void**)p, n, HOST_PINNED); }
template <class T> cudaError_t cudaHostAlloc(T** p, size_t n, unsigned = 0) { return host_allocate((void**)p, n, HOST_PINNED); }
template <class T> cudaError_t cudaMallocManaged(T** p, size_t n, unsigned = 1) { return host_allocate((void**)p, n, HOST_MANAGED); }
template <class T> cudaError_t cudaMallocAsync(T** p, size_t n, cudaStream_t) { return cudaMalloc(p, n); }
template <class T> cudaError_t cudaMallocPitch(T** p, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return cudaMalloc(p, *pitch * height);
}
inline cudaError_t cudaFree(void* p) { return host_release(p, HOST_DEVICE); }
inline cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return host_release(p, HOST_DEVICE); }
inline cudaError_t cudaFreeHost(void* p) { return host_release(p, HOST_PINNED); }

inline cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) { return host_copy(to, from, n, kind); }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t = 0) {
  return host_copy(to, from, n, kind);
}
inline cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                                cudaMemcpyKind kind) {
  if (width > to_pitch || width > from_pitch) return host_failed(cudaErrorInvalidPitchValue);
  for (size_t row = 0; row < height; ++row)
    if (cudaError_t e = host_copy((char*)to + row * to_pitch, (const char*)from + row * from_pitch, width, kind)) return e;
  return cudaSuccess;
}
template <class T> cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t n, size_t at = 0,
                                                  cudaMemcpyKind = cudaMemcpyHostToDevice) {
  return host_copy((char*)&symbol + at, from, n, cudaMemcpyDefault);
}
template <class T> cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t n, size_t at = 0,
                                                    cudaMemcpyKind = cudaMemcpyDeviceToHost) {
  return host_copy(to, (const char*)&symbol + at, n, cudaMemcpyDefault);
}
template <class T> cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t n, size_t at, cudaMemcpyKind kind,
                                                       cudaStream_t = 0) {
  return cudaMemcpyToSymbol(symbol, from, n, at, kind);
}
template <class P, class T> cudaError_t cudaGetSymbolAddress(P** p, T& symbol) { *p = (P*)&symbol; return cudaSuccess; }
inline cudaError_t cudaMemset(void* to, int value, size_t n) { return host_fill(to, value, n); }
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t n, cudaStream_t = 0) { return host_fill(to, value, n); }
inline cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t = 0) { return cudaSuccess; }
inline cudaError_t cudaMemGetInfo(size_t* free, size_t* total) { return host_memory(free, total); }

inline cudaError_t cudaDeviceSynchronize() { return host_synchronize(); }
inline cudaError_t cudaThreadSynchronize() { return host_synchronize(); }
inline cudaError_t cudaDeviceReset() { return host_synchronize(); }
inline cudaError_t cudaGetLastError() { return host_last_error(1); }
inline cudaError_t cudaPeekAtLastError() { return host_last_error(0); }
inline const char* cudaGetErrorString(cudaError_t e) { return host_error_text(e, 0); }
inline const char* cudaGetErrorName(cudaError_t e) { return host_error_text(e, 1); }
inline cudaError_t cudaGetDeviceCount(int* n) { *n = 1; return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* n) { *n = 0; return cudaSuccess; }
inline cudaError_t cudaSetDevice(int n) { return host_set_device(n); }
inline cudaError_t cudaDriverGetVersion(int* v) { *v = 13020; return cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* v) { *v = 13020; return cudaSuccess; }
inline void host_name(char* to, const char* from) { while ((*to++ = *from++)); }
// Of an H200, whose limits the emulator checks.
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int n) {
  if (cudaError_t e = host_set_device(n)) return e;
  memset(p, 0, sizeof *p);
  host_name(p->name, "Kernel Theatre's emulator");
  p->major = 9; p->minor = 0; p->multiProcessorCount = 132; p->warpSize = 32; p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048; p->maxBlocksPerMultiProcessor = 32; p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->sharedMemPerBlock = 49152; p->sharedMemPerBlockOptin = 232448; p->sharedMemPerMultiprocessor = 233472; p->totalConstMem = 65536;
  p->totalGlobalMem = 1ull << 33; p->l2CacheSize = 60 << 20; p->memoryBusWidth = 6144; p->unifiedAddressing = 1;
  p->managedMemory = p->concurrentManagedAccess = p->cooperativeLaunch = p->concurrentKernels = p->canMapHostMemory = 1;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024; p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647; p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  return cudaSuccess;
}

// Streams keep their order here: each call is done before it returns. An event's time is not measured.
inline cudaError_t cudaStreamCreate(cudaStream_t* s) { *s = (cudaStream_t)1; return cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return cudaStreamCreate(s); }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return host_synchronize(); }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
struct host_event { bool timed, recorded; };
inline cudaError_t cudaEventCreate(cudaEvent_t* e, unsigned flags = 0) {
  *e = (cudaEvent_t)new host_event{!(flags & cudaEventDisableTiming), false};
  return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags) { return cudaEventCreate(e, flags); }
inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t = 0) {
  if (!e) return host_failed(cudaErrorInvalidResourceHandle);
  ((host_event*)e)->recorded = true;
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t e) { return e ? host_synchronize() : host_failed(cudaErrorInvalidResourceHandle); }
inline cudaError_t cudaEventQuery(cudaEvent_t e) { return e ? cudaSuccess : host_failed(cudaErrorInvalidResourceHandle); }
inline cudaError_t cudaEventDestroy(cudaEvent_t e) {
  if (!e) return host_failed(cudaErrorInvalidResourceHandle);
  delete (host_event*)e;
  return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  for (cudaEvent_t e : {start, end})
    if (!e || !((host_event*)e)->recorded || !((host_event*)e)->timed) return host_failed(cudaErrorInvalidResourceHandle);
  *ms = 0;
  return cudaSuccess;
}

template <class K> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, K* kernel, int threads, size_t shared) {
  return host_occupancy(n, (const void*)kernel, threads, shared);
}
template <class K> cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, K* kernel, size_t shared = 0, int limit = 0) {
  int best = 0;
  for (int threads = limit ? limit : 1024; threads >= 32; threads -= 32) {
    int n = 0;
    if (cudaError_t e = host_occupancy(&n, (const void*)kernel, threads, shared)) return e;
    if (n * threads > best) { best = n * threads; *block = threads; *grid = 132 * n; }
  }
  return cudaSuccess;
}
template <class K> cudaError_t cudaFuncSetAttribute(K* kernel, cudaFuncAttribute which, int value) {
  return which == cudaFuncAttributeMaxDynamicSharedMemorySize ? host_allow_shared((const void*)kernel, value) : cudaSuccess;
}

// -- C --------------------------------------------------------------------------------------------------
#define stdout ((void*)1)
#define stderr ((void*)2)
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
#define RAND_MAX 2147483647
#define CLOCKS_PER_SEC 1000000
template <class... T> int fprintf(void*, const char* format, T... values) { return printf(format, values...); }
inline int fflush(void*) { return 0; }
inline int puts(const char* text) { return printf("%s\n", text); }
inline int putchar(int c) { return printf("%c", c); }
inline void exit(int status) { host_exit(status); }
inline void abort() { host_exit(134); }
__device__ unsigned long long host_random = 1;
inline void srand(unsigned seed) { host_random = seed; }
inline int rand() {
  host_random = host_random * 6364136223846793005ull + 1442695040888963407ull;
  return (int)(host_random >> 33);
}
inline void* calloc(size_t count, size_t size) { void* p = malloc(count * size); if (p) memset(p, 0, count * size); return p; }
inline size_t strlen(const char* s) { size_t n = 0; while (s[n]) ++n; return n; }
inline int strcmp(const char* a, const char* b) {
  while (*a && *a == *b) { ++a; ++b; }
  return (unsigned char)*a - (unsigned char)*b;
}
inline char* strcpy(char* to, const char* from) { host_name(to, from); return to; }
inline double atof(const char* s) {
  double sign = 1, value = 0, scale = 1;
  if (*s == '-' || *s == '+') sign = *s++ == '-' ? -1 : 1;
  for (; *s >= '0' && *s <= '9'; ++s) value = 10 * value + (*s - '0');
  if (*s == '.') for (++s; *s >= '0' && *s <= '9'; ++s) value += (*s - '0') * (scale /= 10);
  return sign * value;
}
inline long long atoll(const char* s) {
  long long sign = 1, value = 0;
  if (*s == '-' || *s == '+') sign = *s++ == '-' ? -1 : 1;
  for (; *s >= '0' && *s <= '9'; ++s) value = 10 * value + (*s - '0');
  return sign * value;
}
inline int atoi(const char* s) { return (int)atoll(s); }
inline long atol(const char* s) { return (long)atoll(s); }
inline double fmax(double a, float b) { return fmax(a, (double)b); }
inline double fmax(float a, double b) { return fmax((double)a, b); }
inline double fmin(double a, float b) { return fmin(a, (double)b); }
inline double fmin(float a, double b) { return fmin((double)a, b); }
#define time(to) ((long long)0)
