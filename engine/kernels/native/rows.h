// What happens to rows of activations around the products: norm, SwiGLU, rounding, rotary.
// Plain loops, vectorised by the compiler for the instruction set of the including file.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ghostwright.h"

namespace gw {
namespace {

// Unlike fmax and fmin these vectorise: they need not care for NaN.
inline float larger(float a, float b) { return a > b ? a : b; }
inline float smaller(float a, float b) { return a < b ? a : b; }

// Scratch memory of one purpose and thread, kept between calls.
template <class T, int Purpose>
T* scratch(size_t count) {
  static thread_local std::vector<T> memory;
  if (memory.size() < count + 64 / sizeof(T)) memory.resize(count + 64 / sizeof(T));
  auto at = reinterpret_cast<uintptr_t>(memory.data());
  return reinterpret_cast<T*>((at + 63) & ~uintptr_t(63));
}

// e^x to 2 ulp: a degree-6 polynomial on [-ln2/2, ln2/2] and the exponent put in by its bits.
inline float exp_fast(float x) {
  x = smaller(larger(x, -87.0f), 88.0f);
  const float n = std::nearbyint(x * 1.44269504f);
  const float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.3981999e-3f;
  p = p * r + 8.3334519e-3f;
  p = p * r + 4.1665795e-2f;
  p = p * r + 1.6666665e-1f;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, 4);
  return p * power;
}

inline float silu(float x) { return x / (1.0f + exp_fast(-x)); }

// One row as the product sees it, in FP32. Returns the row itself where nothing is to be done.
inline const float* prepare_row(const Input& in, int64_t row, int64_t cols, float* to) {
  const float* x = in.x + row * in.stride;
  if (in.norm) {
    float power = 0;
    for (int64_t i = 0; i < cols; ++i) power += x[i] * x[i];
    const float scale = 1.0f / std::sqrt(power / cols + in.eps);
    for (int64_t i = 0; i < cols; ++i) to[i] = x[i] * scale * in.norm[i];
    return to;
  }
  if (in.swiglu) {
    const float* up = x + cols;
    for (int64_t i = 0; i < cols; ++i) to[i] = silu(x[i]) * up[i];
    return to;
  }
  return x;
}

// Activations rounded to INT8, one scale per row and group of 32 columns.
struct Rounded {
  int8_t* codes;  // [m, cols]
  float* scales;  // [m, cols / 32]
  int32_t* sums;  // [m, cols / 32], of the codes: what a weight's zero point multiplies
  int64_t cols, groups;
};

template <int Purpose>
Rounded rounded(int64_t m, int64_t cols) {
  const int64_t groups = cols / kGroup;
  return {scratch<int8_t, Purpose>(m * cols), scratch<float, 100 + Purpose>(m * groups),
          scratch<int32_t, Purpose>(m * groups), cols, groups};
}

inline void round_group(const float* x, const Rounded& to, int64_t row, int64_t group) {
  float peak = 0;
  for (int i = 0; i < kGroup; ++i) peak = larger(peak, std::fabs(x[i]));
  const float scale = peak / 127.0f;
  const float inverse = peak > 1e-30f ? 127.0f / peak : 0.0f;
  int8_t* codes = to.codes + row * to.cols + group * kGroup;
  int32_t sum = 0;
  for (int i = 0; i < kGroup; ++i) {
    const int32_t code = static_cast<int32_t>(std::nearbyint(x[i] * inverse));
    sum += code;
    codes[i] = static_cast<int8_t>(code);
  }
  to.scales[row * to.groups + group] = scale;
  to.sums[row * to.groups + group] = sum;
}

inline void round_row(const Input& in, const Rounded& to, int64_t row, float* temporary) {
  const float* x = prepare_row(in, row, to.cols, temporary);
  for (int64_t g = 0; g < to.groups; ++g) round_group(x + g * kGroup, to, row, g);
}

// Rotary embedding of one head in the half-split layout.
inline void rotate_head(const float* x, const float* cos, const float* sin, int64_t half,
                        float scale, float* to) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i] * scale, b = x[half + i] * scale;
    to[i] = a * cos[i] - b * sin[i];
    to[half + i] = b * cos[i] + a * sin[i];
  }
}

inline uint16_t to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace
}  // namespace gw
