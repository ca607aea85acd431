/* One function per kind of operator: the value of element i of the output. The same text is compiled
   for a GPU by NVRTC and for the host by cc. p holds shapes and attributes, see lowering.py. */
#ifdef __CUDACC_RTC__
#define DEV static __device__
#else
#include <math.h>
#define DEV static
#endif
typedef struct { long v[24]; float f[4]; } P;
#define ARGS long i, P p, const float *a, const float *b, const float *c

DEV float copy_(ARGS) { return a[i]; }
DEV float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }
/* f: what the operator has of attributes. */
DEV float relu_(ARGS) { return a[i] > 0.f ? a[i] : 0.f; }
DEV float leakyrelu_(ARGS) { return a[i] > 0.f ? a[i] : p.f[0] * a[i]; }
DEV float clip_(ARGS) { return fminf(fmaxf(a[i], p.f[0]), p.f[1]); }
DEV float hardsigmoid_(ARGS) { return fminf(fmaxf(p.f[0] * a[i] + p.f[1], 0.f), 1.f); }
DEV float hardswish_(ARGS) { return a[i] * fminf(fmaxf(a[i] / 6.f + 0.5f, 0.f), 1.f); }
DEV float sigmoid_(ARGS) { return sigmoid(a[i]); }
DEV float tanh_(ARGS) { return tanhf(a[i]); }
DEV float erf_(ARGS) { return erff(a[i]); }
DEV float exp_(ARGS) { return expf(a[i]); }
DEV float sqrt_(ARGS) { return sqrtf(a[i]); }
DEV float neg_(ARGS) { return -a[i]; }
DEV float reciprocal_(ARGS) { return 1.f / a[i]; }

/* Where element i of six dimensions v[0..5] is, by the strides at v[at]. */
DEV long place(long i, const P *p, int at) {
  long to = 0;
  for (int d = 5; d >= 0; d--) { to += i % p->v[d] * p->v[at + d]; i /= p->v[d]; }
  return to;
}
/* v: output shape, strides of a and b. */
#define LEFT a[place(i, &p, 6)]
#define RIGHT b[place(i, &p, 12)]
DEV float add_(ARGS) { return LEFT + RIGHT; }
DEV float sub_(ARGS) { return LEFT - RIGHT; }
DEV float mul_(ARGS) { return LEFT * RIGHT; }
DEV float div_(ARGS) { return LEFT / RIGHT; }
DEV float pow_(ARGS) { return powf(LEFT, RIGHT); }
DEV float max_(ARGS) { return fmaxf(LEFT, RIGHT); }
DEV float prelu_(ARGS) { float x = LEFT; return x > 0.f ? x : x * RIGHT; }
/* v: output shape, stride in a of each output dimension, where the first element is. */
DEV float move_(ARGS) { return a[p.v[12] + place(i, &p, 6)]; }
/* v: output shape, input shape, padding before; reflects. f: what is padded with. */
DEV float pad_(ARGS) {
  long from = 0, step = 1;
  for (int d = 5; d >= 0; d--) {
    long size = p.v[6 + d], k = i % p.v[d] - p.v[12 + d];
    if (p.v[18] && k < 0) k = -k;
    if (p.v[18] && k >= size) k = 2 * size - 2 - k;
    if (k < 0 || k >= size) return p.f[0];
    from += k * step; step *= size; i /= p.v[d];
  }
  return a[from];
}
/* v: C H W, M OH OW, KH KW, SH SW, PT PL, DH DW, groups, has bias. */
DEV float conv_(ARGS) {
  long C = p.v[0], H = p.v[1], W = p.v[2], M = p.v[3], OH = p.v[4], OW = p.v[5];
  long KH = p.v[6], KW = p.v[7], own = C / p.v[14];
  long ox = i % OW, oy = i / OW % OH, m = i / (OW * OH) % M, n = i / (OW * OH * M);
  long first = n * C + m / (M / p.v[14]) * own;
  float sum = p.v[15] ? c[m] : 0.f;
  for (long ch = 0; ch < own; ch++) for (long ky = 0; ky < KH; ky++) {
    long y = oy * p.v[8] - p.v[10] + ky * p.v[12];
    if (y < 0 || y >= H) continue;
    for (long kx = 0; kx < KW; kx++) {
      long x = ox * p.v[9] - p.v[11] + kx * p.v[13];
      if (x >= 0 && x < W)
        sum += a[((first + ch) * H + y) * W + x] * b[((m * own + ch) * KH + ky) * KW + kx];
    }
  }
  return sum;
}
/* v as of conv_, without dilations. */
DEV float deconv_(ARGS) {
  long C = p.v[0], H = p.v[1], W = p.v[2], M = p.v[3], OH = p.v[4], OW = p.v[5];
  long KH = p.v[6], KW = p.v[7], own = C / p.v[14], maps = M / p.v[14];
  long ox = i % OW, oy = i / OW % OH, m = i / (OW * OH) % M, n = i / (OW * OH * M);
  long first = m / maps * own;
  float sum = p.v[15] ? c[m] : 0.f;
  for (long ky = 0; ky < KH; ky++) for (long kx = 0; kx < KW; kx++) {
    long y = oy + p.v[10] - ky, x = ox + p.v[11] - kx;
    if (y < 0 || x < 0 || y % p.v[8] || x % p.v[9] || y / p.v[8] >= H || x / p.v[9] >= W) continue;
    for (long ch = first; ch < first + own; ch++)
      sum += a[((n * C + ch) * H + y / p.v[8]) * W + x / p.v[9]]
        * b[((ch * maps + m % maps) * KH + ky) * KW + kx];
  }
  return sum;
}
/* v as of conv_; v[14]: whether it is the mean, v[15]: also of what is padded. */
DEV float pool_(ARGS) {
  long H = p.v[1], W = p.v[2], OH = p.v[4], OW = p.v[5];
  long ox = i % OW, oy = i / OW % OH, nc = i / (OW * OH), count = 0;
  float best = -3.4e38f, sum = 0.f;
  for (long ky = 0; ky < p.v[6]; ky++) for (long kx = 0; kx < p.v[7]; kx++) {
    long y = oy * p.v[8] - p.v[10] + ky, x = ox * p.v[9] - p.v[11] + kx;
    if (y < 0 || y >= H || x < 0 || x >= W) continue;
    float value = a[(nc * H + y) * W + x];
    best = fmaxf(best, value); sum += value; count++;
  }
  return p.v[14] ? sum / (p.v[15] ? p.v[6] * p.v[7] : count) : best;
}
/* Along one axis. v: how many are reduced, how many lie beside each other, mean 0 L2 norm 1 sum 2. */
DEV float reduce_(ARGS) {
  const float *from = a + i / p.v[1] * p.v[0] * p.v[1] + i % p.v[1];
  float sum = 0.f;
  for (long k = 0; k < p.v[0]; k++) {
    float x = from[k * p.v[1]];
    sum += p.v[2] == 1 ? x * x : p.v[2] ? x : x / p.v[0];
  }
  return p.v[2] == 1 ? sqrtf(sum) : sum;
}
/* v as of reduce_. */
DEV float softmax_(ARGS) {
  long K = p.v[0], step = p.v[1];
  const float *row = a + i / (K * step) * K * step + i % step;
  float top = row[0], sum = 0.f;
  for (long k = 1; k < K; k++) top = fmaxf(top, row[k * step]);
  for (long k = 0; k < K; k++) sum += expf(row[k * step] - top);
  return expf(a[i] - top) / sum;
}
/* v: length of a row, how many elements share a scale, how many scales, has bias. f: epsilon. */
DEV float norm_(ARGS) {
  long K = p.v[0], at = i / p.v[1] % p.v[2];
  const float *row = a + i / K * K;
  float mean = 0.f, var = 0.f;
  for (long k = 0; k < K; k++) mean += row[k] / K;
  for (long k = 0; k < K; k++) var += (row[k] - mean) * (row[k] - mean) / K;
  return (a[i] - mean) / sqrtf(var + p.f[0]) * b[at] + (p.v[3] ? c[at] : 0.f);
}
/* v: H W, OH OW, 0 nearest 1 linear 2 cubic, 0 half pixel 1 asymmetric 2 aligned corners, floors.
   f: scales, the cubic kernel's coefficient. */
DEV float source(long i, long from, long to, float scale, long how) {
  if (how == 2) return to > 1 ? i * (float)(from - 1) / (to - 1) : 0.f;
  return how ? i / scale : (i + 0.5f) / scale - 0.5f;
}
DEV long inside(long k, long size) { return k < 0 ? 0 : k >= size ? size - 1 : k; }
DEV float keys(float d, float a) {
  d = fabsf(d);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}
DEV float resize_(ARGS) {
  long H = p.v[0], W = p.v[1], OH = p.v[2], OW = p.v[3];
  const float *map = a + i / (OW * OH) * H * W;
  float y = source(i / OW % OH, H, OH, p.f[0], p.v[5]);
  float x = source(i % OW, W, OW, p.f[1], p.v[5]);
  if (!p.v[4]) {  /* Rounds down where two are as near, as the default does. */
    long ky = (long)(p.v[6] ? floorf(y) : ceilf(y - 0.5f));
    long kx = (long)(p.v[6] ? floorf(x) : ceilf(x - 0.5f));
    return map[inside(ky, H) * W + inside(kx, W)];
  }
  if (p.v[4] == 2) {  /* Cubic: Keys' kernel over four pixels each way, edges repeated. */
    float sum = 0;
    for (int v = -1; v < 3; v++)
      for (int u = -1; u < 3; u++)
        sum += keys(y - floorf(y) - v, p.f[2]) * keys(x - floorf(x) - u, p.f[2])
          * map[inside((long)floorf(y) + v, H) * W + inside((long)floorf(x) + u, W)];
    return sum;
  }
  y = fminf(fmaxf(y, 0.f), H - 1.f); x = fminf(fmaxf(x, 0.f), W - 1.f);
  long top = (long)y, left = (long)x, low = inside(top + 1, H), right = inside(left + 1, W);
  float dy = y - top, dx = x - left;
  return (1 - dy) * ((1 - dx) * map[top * W + left] + dx * map[top * W + right])
    + dy * ((1 - dx) * map[low * W + left] + dx * map[low * W + right]);
}
/* v: M N K, strides of b along k and n, of a along the batch, of b along the batch, has bias. */
DEV float matmul_(ARGS) {
  long M = p.v[0], N = p.v[1], K = p.v[2], n = i % N, m = i / N % M, batch = i / (N * M);
  float sum = p.v[7] ? c[n] : 0.f;
  for (long k = 0; k < K; k++)
    sum += a[batch * p.v[5] + m * K + k] * b[batch * p.v[6] + k * p.v[3] + n * p.v[4]];
  return sum;
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
#define HEAD(name) extern "C" __global__ void k_##name( \
  P p, long n, const float *a, const float *b, const float *c, const float *d, const float *e, \
  float *y)
#define KERNEL(name) HEAD(name) { \
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x; if (i < n) y[i] = name##_(i, p, a, b, c); }
#define BLOCKS(block, n) long block = blockIdx.x;
#define EACH(h, H) for (long h = threadIdx.x; h < H; h += blockDim.x)
#define SHARED __shared__
#define WAIT __syncthreads()
#else
#define HEAD(name) void k_##name( \
  P p, long n, const float *a, const float *b, const float *c, const float *d, const float *e, \
  float *y)
#define KERNEL(name) HEAD(name) { for (long i = 0; i < n; i++) y[i] = name##_(i, p, a, b, c); }
#define BLOCKS(block, n) for (long block = 0; block < n / 128; block++)
#define EACH(h, H) for (long h = 0; h < H; h++)
#define SHARED
#define WAIT
#endif
/* b, c, d, e: scale, bias, mean and variance of channels. v: pixels, channels. f: epsilon. */
HEAD(batchnorm) {
  BLOCKS(block, n + 127) EACH(k, 128) {
    long i = block * 128 + k, at = i / p.v[0] % p.v[1];
    if (i < n) y[i] = (a[i] - d[at]) / sqrtf(e[at] + p.f[0]) * b[at] + c[at];
  }
}
/* One block for each direction and sample. v: steps, directions, samples, inputs, units, has bias,
   is an LSTM rather than a GRU. d: bias. Gates as in ONNX: iofc and zrh. */
#define UNITS 1024
DEV float gate(long k, long h, const P *p, const float *x, const float *before, const float *w,
               const float *r, const float *bias) {
  long I = p->v[3], H = p->v[4], row = k * H + h;
  float sum = p->v[5] ? bias[row] + bias[(p->v[6] ? 4 : 3) * H + row] : 0.f;
  for (long k = 0; k < I; k++) sum += x[k] * w[row * I + k];
  for (long k = 0; before && k < H; k++) sum += before[k] * r[row * H + k];
  return sum;
}
#define GATE(k, state) gate(k, h, &p, x, state, b + dir * rows * p.v[3], c + dir * rows * H, \
                            d + dir * 2 * rows)
HEAD(recurrent) {
  long T = p.v[0], D = p.v[1], B = p.v[2], H = p.v[4], rows = (p.v[6] ? 4 : 3) * H;
  SHARED float state[UNITS];  /* Of an LSTM its cells, of a GRU what its reset gates leave. */
  BLOCKS(block, n) {
    long dir = block / B, sample = block % B;
    EACH(h, H) state[h] = 0.f;
    for (long s = 0; s < T; s++) {
      long t = dir ? T - 1 - s : s, then = dir ? t + 1 : t - 1;
      const float *x = a + (t * B + sample) * p.v[3];
      const float *before = s ? y + ((then * D + dir) * B + sample) * H : 0;
      float *now = y + ((t * D + dir) * B + sample) * H;
      EACH(h, H) {
        if (p.v[6]) {
          state[h] *= sigmoid(GATE(2, before));
          state[h] += sigmoid(GATE(0, before)) * tanhf(GATE(3, before));
          now[h] = sigmoid(GATE(1, before)) * tanhf(state[h]);
        } else {
          state[h] = before ? sigmoid(GATE(1, before)) * before[h] : 0.f;
        }
      }
      WAIT;
      if (!p.v[6]) EACH(h, H) {
        float z = sigmoid(GATE(0, before));
        now[h] = (1.f - z) * tanhf(GATE(2, state)) + (before ? z * before[h] : 0.f);
      }
      WAIT;
    }
  }
}
/* One of the inputs of a Concat. v: elements beside each other in a, in the output, and where. */
HEAD(concat) {
  BLOCKS(block, n + 127) {
    long first = block * 128, many = n - first < 128 ? n - first : 128;
    EACH(k, many) {
      long i = first + k;
      y[i / p.v[0] * p.v[1] + p.v[2] + i % p.v[0]] = a[i];
    }
  }
}
KERNEL(copy) KERNEL(relu) KERNEL(leakyrelu) KERNEL(clip) KERNEL(hardsigmoid) KERNEL(hardswish)
KERNEL(sigmoid) KERNEL(tanh) KERNEL(erf) KERNEL(exp) KERNEL(sqrt) KERNEL(neg) KERNEL(reciprocal)
KERNEL(add) KERNEL(sub) KERNEL(mul) KERNEL(div) KERNEL(pow) KERNEL(max) KERNEL(prelu) KERNEL(move)
KERNEL(pad) KERNEL(conv) KERNEL(deconv) KERNEL(pool) KERNEL(reduce) KERNEL(softmax) KERNEL(norm)
KERNEL(resize) KERNEL(matmul) KERNEL(quantize) KERNEL(dequantize)
