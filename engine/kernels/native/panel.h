// Products of many rows on AVX2: the codes of a tile are spread to bytes once, for hundreds of
// rows, and multiplied four rows by sixteen at a time, so that a broadcast of activations
// serves two registers of weights. A zero point is taken off the scaled sum in FP32, where that
// is one multiply-add; `integer.h`, for few rows, takes it off the exact integer sum.
#pragma once
#include <immintrin.h>

#include "integer.h"

namespace gw {
namespace {

constexpr int64_t kPanelRows = 4;     // multiplied at a time
constexpr int64_t kChunk = 128;       // rows whose activations stay in the second-level cache
constexpr int64_t kPanelGroups = 38;  // groups of columns in a panel: 19 KB

// Some groups of one tile of weights.
struct Panel {
  uint8_t* codes;  // [groups, 8, 64]; of INT8 signed, else 0..15
  float* scales;   // [groups, 16]; unused for INT8
  float* shifts;   // [groups, 16]: scale * zero point; unused for INT8
  int64_t first, groups;
};

template <int Purpose>
Panel panel() {
  return {scratch<uint8_t, Purpose>(kPanelGroups * 512),
          scratch<float, 200 + Purpose>(kPanelGroups * kTile),
          scratch<float, 300 + Purpose>(kPanelGroups * kTile), 0, 0};
}

template <int F>
inline void spread(const Matrix& w, int64_t tile, const Panel& to) {
  const int64_t groups = w.cols / kGroup;
  constexpr int kLines = F == kInt8 ? 8 : 4;
  const uint8_t* codes = w.codes + (tile * groups + to.first) * kLines * 64;
  const int64_t vectors = to.groups * kLines * 2;
  const __m256i low = _mm256_set1_epi8(15);
  for (int64_t i = 0; i < vectors; ++i) {
    const __m256i v = _mm256_loadu_si256((const __m256i*)(codes + i * 32));
    if constexpr (F == kInt8) {
      _mm256_store_si256((__m256i*)(to.codes + i * 32),
                         _mm256_xor_si256(v, _mm256_set1_epi8(-128)));
    } else {
      uint8_t* out = to.codes + i / 2 * 128 + i % 2 * 32;
      _mm256_store_si256((__m256i*)out, _mm256_and_si256(v, low));
      _mm256_store_si256((__m256i*)(out + 64),
                         _mm256_and_si256(_mm256_srli_epi16(v, 4), low));
    }
  }
  if constexpr (F != kInt8) {
    const int64_t at = (tile * groups + to.first) * kTile;
    const uint16_t* scales = static_cast<const uint16_t*>(w.scales) + at;
    for (int64_t i = 0; i < to.groups * kTile; i += 8) {
      const __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(scales + i)));
      __m256 zero = _mm256_set1_ps(8.0f);
      if constexpr (F == kInt4Zero)
        zero = _mm256_cvtepi32_ps(
            _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)(w.zeros + at + i))));
      _mm256_store_ps(to.scales + i, scale);
      _mm256_store_ps(to.shifts + i, _mm256_mul_ps(scale, zero));
    }
  }
}

// out[0..M) += rows [row, row + M) times the panel. The running sums live in memory: registers
// are for the products.
template <int M, int F>
inline void multiply_panel(const Panel& p, const Rounded& a, int64_t row, float (*out)[kTile]) {
  const __m256i ones = _mm256_set1_epi16(1);
  const int64_t cols = a.cols, groups = a.groups;
  const int8_t* x = a.codes + row * cols + p.first * kGroup;
  const float* factors = a.scales + row * groups + p.first;
  const int32_t* totals = a.sums + row * groups + p.first;
  const uint8_t* codes = p.codes;
  const float *scales = p.scales, *shifts = p.shifts;
  for (int64_t left = p.groups; left > 0; --left) {
    asm volatile("" ::: "memory");  // or GCC keeps `out` in registers and spills the products
    __m256i dot[M][2];
    for (int m = 0; m < M; ++m) dot[m][0] = dot[m][1] = _mm256_setzero_si256();
    // Unrolled, GCC would put all products before all sums, and spill them.
#pragma GCC unroll 1
    for (int word = 0; word < 8; ++word, codes += 64, x += 4) {
      const __m256i w0 = _mm256_load_si256((const __m256i*)codes);
      const __m256i w1 = _mm256_load_si256((const __m256i*)(codes + 32));
      for (int m = 0; m < M; ++m) {
        const __m256i four = _mm256_set1_epi32(*(const int32_t*)(x + m * cols));
        if constexpr (F == kInt8) {
          const __m256i p0 =
              _mm256_maddubs_epi16(_mm256_abs_epi8(w0), _mm256_sign_epi8(four, w0));
          const __m256i p1 =
              _mm256_maddubs_epi16(_mm256_abs_epi8(w1), _mm256_sign_epi8(four, w1));
          dot[m][0] = _mm256_add_epi32(dot[m][0], _mm256_madd_epi16(p0, ones));
          dot[m][1] = _mm256_add_epi32(dot[m][1], _mm256_madd_epi16(p1, ones));
        } else {  // eight products of at most 2 * 15 * 127 fit 16 bits
          dot[m][0] = _mm256_add_epi16(dot[m][0], _mm256_maddubs_epi16(w0, four));
          dot[m][1] = _mm256_add_epi16(dot[m][1], _mm256_maddubs_epi16(w1, four));
        }
      }
    }
    for (int m = 0; m < M; ++m) {
      const __m256 factor = _mm256_set1_ps(factors[m * groups]);
      const __m256 total = _mm256_cvtepi32_ps(_mm256_set1_epi32(totals[m * groups]));
      for (int half = 0; half < 2; ++half) {
        float* to = out[m] + half * 8;
        __m256 sum = _mm256_load_ps(to);
        if constexpr (F == kInt8) {
          sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[m][half]), factor, sum);
        } else {
          const __m256 whole = _mm256_cvtepi32_ps(_mm256_madd_epi16(dot[m][half], ones));
          const __m256 shift = _mm256_mul_ps(total, _mm256_load_ps(shifts + half * 8));
          const __m256 exact = _mm256_fmsub_ps(whole, _mm256_load_ps(scales + half * 8), shift);
          sum = _mm256_fmadd_ps(exact, factor, sum);
        }
        _mm256_store_ps(to, sum);
      }
    }
    ++factors;
    ++totals;
    scales += kTile;
    shifts += kTile;
  }
}

template <int F>
inline void multiply_chunk(const Matrix& w, int64_t tile, const Rounded& a, int64_t row,
                           int64_t m, const Panel& space, float (*out)[kTile]) {
  for (int64_t i = 0; i < m; ++i)
    for (int r = 0; r < kTile; ++r) out[i][r] = 0;
  for (int64_t first = 0; first < a.groups; first += kPanelGroups) {
    Panel p = space;
    p.first = first;
    p.groups = std::min(kPanelGroups, a.groups - first);
    spread<F>(w, tile, p);
    int64_t i = 0;
    for (; i + kPanelRows <= m; i += kPanelRows)
      multiply_panel<kPanelRows, F>(p, a, row + i, out + i);
    for (; i < m; ++i) multiply_panel<1, F>(p, a, row + i, out + i);
  }
  const int64_t real = std::min<int64_t>(kTile, w.rows - tile * kTile);
  for (int64_t r = 0; r < real; ++r) {
    const float scale = F == kInt8 ? static_cast<const float*>(w.scales)[tile * kTile + r] : 1.0f;
    const float bias = w.bias ? w.bias[tile * kTile + r] : 0.0f;
    for (int64_t i = 0; i < m; ++i) out[i][r] = out[i][r] * scale + bias;
  }
}

// out[0..m) = rows [row, row + m) of a times one tile of w, bias included; m <= kChunk.
inline void multiply_many(const Matrix& w, int64_t tile, const Rounded& a, int64_t row,
                          int64_t m, const Panel& space, float (*out)[kTile]) {
  if (w.format == kInt8) multiply_chunk<kInt8>(w, tile, a, row, m, space, out);
  if (w.format == kInt4) multiply_chunk<kInt4>(w, tile, a, row, m, space, out);
  if (w.format == kInt4Zero) multiply_chunk<kInt4Zero>(w, tile, a, row, m, space, out);
}

inline int64_t chunks(int64_t m) { return (m + kChunk - 1) / kChunk; }

// y = or += w times the rounded rows; called by all threads of a region.
inline void panel_all(Team& team, int thread, const Matrix& w, const Rounded& a, int64_t m,
                      float* y, int64_t y_stride, bool add) {
  const Panel space = panel<11>();
  auto* out = reinterpret_cast<float(*)[kTile]>(scratch<float, 12>(kChunk * kTile));
  int64_t item, end;
  while (team.claim(thread, tiles(w) * chunks(m), 1, item, end)) {
    const int64_t tile = item % tiles(w), row = item / tiles(w) * kChunk;
    const int64_t now = std::min(kChunk, m - row);
    multiply_many(w, tile, a, row, now, space, out);
    const int64_t real = std::min<int64_t>(kTile, w.rows - tile * kTile);
    for (int64_t i = 0; i < now; ++i) {
      float* to = y + (row + i) * y_stride + tile * kTile;
      for (int64_t r = 0; r < real; ++r) to[r] = add ? to[r] + out[i][r] : out[i][r];
    }
  }
}

inline void panel_linear(const Matrix& w, const Input& in, int64_t m, float* y,
                         int64_t y_stride, bool add, int threads) {
  const Rounded shared = rounded<1>(m, w.cols);
  parallel(threads, [&](Team& team, int thread) {
    const Rounded a = round_all<3>(team, thread, in, m, w.cols, shared);
    panel_all(team, thread, w, a, m, y, y_stride, add);
  });
}

inline void panel_mlp(const Matrix& gate_up, const Matrix& down, const Input& in, int64_t m,
                      float* y, int64_t y_stride, int threads) {
  const Rounded shared = rounded<1>(m, gate_up.cols);
  const Rounded hidden = rounded<2>(m, down.cols);
  const int64_t half = down.cols / kTile;  // tiles of gate
  parallel(threads, [&](Team& team, int thread) {
    const Rounded a = round_all<3>(team, thread, in, m, gate_up.cols, shared);
    const Panel space = panel<11>();
    auto* out = reinterpret_cast<float(*)[kTile]>(scratch<float, 13>(4 * kChunk * kTile));
    int64_t item, end;
    while (team.claim(thread, hidden.groups * chunks(m), 1, item, end)) {
      const int64_t group = item % hidden.groups, row = item / hidden.groups * kChunk;
      const int64_t now = std::min(kChunk, m - row);
      for (int t = 0; t < 4; ++t)  // two tiles of gate, two of up
        multiply_many(gate_up, t / 2 * half + 2 * group + t % 2, a, row, now, space,
                      out + t * kChunk);
      for (int64_t i = 0; i < now; ++i) {
        float value[kGroup];
        for (int t = 0; t < 2; ++t)
          for (int r = 0; r < kTile; ++r)
            value[t * kTile + r] = silu(out[t * kChunk + i][r]) * out[(t + 2) * kChunk + i][r];
        round_group(value, hidden, row + i, group);
      }
    }
    team.meet();
    panel_all(team, thread, down, hidden, m, y, y_stride, true);
  });
}

}  // namespace
}  // namespace gw
