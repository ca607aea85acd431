/* One function per operator: the value of element i of the output. The same text is compiled for a
   GPU by NVRTC and for the host by cc. p holds shapes and attributes, see lowering.py. */
#ifdef __CUDACC_RTC__
#define DEV static __device__
#else
#include <math.h>
#define DEV static
#endif
typedef struct { long v[24]; float f[4]; } P;
#define ARGS long i, P p, const float *a, const float *b, const float *c

DEV float copy_(ARGS) { return a[i]; }
DEV float relu_(ARGS) { return a[i] > 0.f ? a[i] : 0.f; }

/* Broadcast over four dimensions: v[0..3] output, v[4..7] and v[8..11] strides of a and b. */
DEV float add_(ARGS) {
  long x = i, ia = 0, ib = 0;
  for (int d = 3; d >= 0; d--) {
    long k = x % p.v[d];
    x /= p.v[d]; ia += k * p.v[4 + d]; ib += k * p.v[8 + d];
  }
  return a[ia] + b[ib];
}
/* v[0..3] output shape, v[4..7] stride in a of each output dimension. */
DEV float transpose_(ARGS) {
  long x = i, ia = 0;
  for (int d = 3; d >= 0; d--) { ia += (x % p.v[d]) * p.v[4 + d]; x /= p.v[d]; }
  return a[ia];
}
/* v: C H W, M OH OW, KH KW, SH SW, PT PL, has bias. */
DEV float conv_(ARGS) {
  long C = p.v[0], H = p.v[1], W = p.v[2], M = p.v[3], OH = p.v[4], OW = p.v[5];
  long KH = p.v[6], KW = p.v[7];
  long ox = i % OW, oy = i / OW % OH, m = i / (OW * OH) % M, n = i / (OW * OH * M);
  float sum = p.v[12] ? c[m] : 0.f;
  for (long ch = 0; ch < C; ch++) for (long ky = 0; ky < KH; ky++) {
    long y = oy * p.v[8] - p.v[10] + ky;
    if (y < 0 || y >= H) continue;
    for (long kx = 0; kx < KW; kx++) {
      long x = ox * p.v[9] - p.v[11] + kx;
      if (x >= 0 && x < W)
        sum += a[((n * C + ch) * H + y) * W + x] * b[((m * C + ch) * KH + ky) * KW + kx];
    }
  }
  return sum;
}
DEV float maxpool_(ARGS) {
  long C = p.v[0], H = p.v[1], W = p.v[2], OH = p.v[4], OW = p.v[5];
  long ox = i % OW, oy = i / OW % OH, nc = i / (OW * OH);
  float best = -3.4e38f;
  for (long ky = 0; ky < p.v[6]; ky++) for (long kx = 0; kx < p.v[7]; kx++) {
    long y = oy * p.v[8] - p.v[10] + ky, x = ox * p.v[9] - p.v[11] + kx;
    if (y >= 0 && y < H && x >= 0 && x < W && a[(nc * H + y) * W + x] > best)
      best = a[(nc * H + y) * W + x];
  }
  return C ? best : 0.f;
}
DEV float average_(ARGS) {
  float sum = 0.f;
  for (long k = 0; k < p.v[0]; k++) sum += a[i * p.v[0] + k];
  return sum / p.v[0];
}
/* v: M N K, strides of b along k and n, of a along the batch, of b along the batch, has bias. */
DEV float matmul_(ARGS) {
  long M = p.v[0], N = p.v[1], K = p.v[2], n = i % N, m = i / N % M, batch = i / (N * M);
  float sum = p.v[7] ? c[n] : 0.f;
  for (long k = 0; k < K; k++)
    sum += a[batch * p.v[5] + m * K + k] * b[batch * p.v[6] + k * p.v[3] + n * p.v[4]];
  return sum;
}
DEV float softmax_(ARGS) {
  long K = p.v[0];
  const float *row = a + i / K * K;
  float top = row[0], sum = 0.f;
  for (long k = 1; k < K; k++) if (row[k] > top) top = row[k];
  for (long k = 0; k < K; k++) sum += expf(row[k] - top);
  return expf(a[i] - top) / sum;
}
DEV float layernorm_(ARGS) {
  long K = p.v[0];
  const float *row = a + i / K * K;
  float mean = 0.f, var = 0.f;
  for (long k = 0; k < K; k++) mean += row[k] / K;
  for (long k = 0; k < K; k++) var += (row[k] - mean) * (row[k] - mean) / K;
  return (a[i] - mean) / sqrtf(var + p.f[0]) * b[i % K];
}
DEV float e4m3(float x) {
  float size = fabsf(x);
  if (size >= 448.f) return x < 0 ? -448.f : 448.f;
  if (size == 0.f) return 0.f;
  float exponent = floorf(log2f(size));
  float step = exp2f((exponent < -6.f ? -6.f : exponent) - 3.f);
  return rintf(x / step) * step;
}
/* v: inner size, number of scales (1 or the axis), is FP8. Scales in b. */
DEV float quantize_(ARGS) {
  float x = a[i] / b[i / p.v[0] % p.v[1]];
  if (p.v[2]) return e4m3(x);
  x = rintf(x);
  return x < -128.f ? -128.f : x > 127.f ? 127.f : x;
}
DEV float dequantize_(ARGS) { return a[i] * b[i / p.v[0] % p.v[1]]; }

#ifdef __CUDACC_RTC__
#define KERNEL(name) extern "C" __global__ void name( \
    P p, long n, const float *a, const float *b, const float *c, float *y) { \
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x; if (i < n) y[i] = name##_(i, p, a, b, c); }
#else
#define KERNEL(name) void name( \
    P p, long n, const float *a, const float *b, const float *c, float *y) { \
  for (long i = 0; i < n; i++) y[i] = name##_(i, p, a, b, c); }
#endif
KERNEL(copy) KERNEL(relu) KERNEL(add) KERNEL(transpose) KERNEL(conv) KERNEL(maxpool) KERNEL(average)
KERNEL(matmul) KERNEL(softmax) KERNEL(layernorm) KERNEL(quantize) KERNEL(dequantize)
