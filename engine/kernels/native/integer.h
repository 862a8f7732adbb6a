// Products of INT4 or INT8 tiles with activations rounded to INT8, for a few rows at a time.
// One weight is read once for up to `kRows` rows; the sums are exact integers per group of
// 32 columns and then scaled, so a row's result does not depend on the rows beside it.
#pragma once
#include <immintrin.h>

#include "rows.h"

namespace gw {
namespace {

constexpr int64_t kPiece = 16 << 10;  // bytes of codes claimed at a time
constexpr int kAhead = 1024;  // bytes prefetched ahead of the stream of codes: measured

#if defined(__AVX512VNNI__)

constexpr int kRows = 8;

template <int M, int F>
inline void multiply_tile(const Matrix& w, int64_t tile, const Rounded& a, int64_t row,
                          float (*out)[kTile]) {
  const int64_t groups = a.groups;
  constexpr int kLines = F == kInt8 ? 8 : 4;  // of 64 bytes in a group
  const uint8_t* codes = w.codes + tile * groups * kLines * 64;
  const __m256i* scales = static_cast<const __m256i*>(w.scales) + tile * groups;
  const __m128i* zeros = reinterpret_cast<const __m128i*>(w.zeros) + tile * groups;
  const __m512i low = _mm512_set1_epi8(15);
  __m512 sum[M];
  for (int m = 0; m < M; ++m) sum[m] = _mm512_setzero_ps();
  for (int64_t g = 0; g < groups; ++g, codes += kLines * 64) {
    for (int line = 0; line < kLines; ++line)
      _mm_prefetch((const char*)codes + kAhead + line * 64, _MM_HINT_T0);
    __m512i dot[M];
    for (int m = 0; m < M; ++m) {
      const int32_t total = a.sums[(row + m) * groups + g];
      if constexpr (F == kInt8) dot[m] = _mm512_set1_epi32(-128 * total);
      if constexpr (F == kInt4) dot[m] = _mm512_set1_epi32(-8 * total);
      if constexpr (F == kInt4Zero)
        dot[m] = _mm512_mullo_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(zeros + g)),
                                    _mm512_set1_epi32(-total));
    }
    for (int line = 0; line < kLines; ++line) {
      const __m512i v = _mm512_loadu_si512(codes + line * 64);
      if constexpr (F == kInt8) {
        for (int m = 0; m < M; ++m) {
          const int8_t* x = a.codes + (row + m) * a.cols + g * kGroup + line * 4;
          dot[m] = _mm512_dpbusd_epi32(dot[m], v, _mm512_set1_epi32(*(const int32_t*)x));
        }
      } else {
        const __m512i first = _mm512_and_si512(v, low);
        const __m512i second = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
        for (int m = 0; m < M; ++m) {
          const int8_t* x = a.codes + (row + m) * a.cols + g * kGroup + line * 8;
          dot[m] = _mm512_dpbusd_epi32(dot[m], first, _mm512_set1_epi32(*(const int32_t*)x));
          dot[m] =
              _mm512_dpbusd_epi32(dot[m], second, _mm512_set1_epi32(*(const int32_t*)(x + 4)));
        }
      }
    }
    __m512 scale = _mm512_set1_ps(1.0f);
    if constexpr (F != kInt8) scale = _mm512_cvtph_ps(_mm256_loadu_si256(scales + g));
    for (int m = 0; m < M; ++m) {
      __m512 factor = _mm512_set1_ps(a.scales[(row + m) * groups + g]);
      if constexpr (F != kInt8) factor = _mm512_mul_ps(factor, scale);
      sum[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[m]), factor, sum[m]);
    }
  }
  for (int m = 0; m < M; ++m) {
    if constexpr (F == kInt8) {
      const __mmask16 real = (1u << std::min<int64_t>(kTile, w.rows - tile * kTile)) - 1;
      const float* at = static_cast<const float*>(w.scales) + tile * kTile;
      sum[m] = _mm512_mul_ps(sum[m], _mm512_maskz_loadu_ps(real, at));
    }
    _mm512_storeu_ps(out[m], sum[m]);
  }
}

#else  // AVX2, with or without AVX-VNNI: a tile is two halves of 8 rows

constexpr int kRows = 4;

template <int M, int F>
inline void multiply_half(const Matrix& w, int64_t tile, int half, const Rounded& a, int64_t row,
                          float (*out)[kTile]) {
  const int64_t groups = a.groups;
  constexpr int kLines = F == kInt8 ? 8 : 4;
  const uint8_t* codes = w.codes + tile * groups * kLines * 64 + half * 32;
  const __m128i* scales = static_cast<const __m128i*>(w.scales) + 2 * tile * groups + half;
  const uint8_t* zeros = w.zeros + tile * groups * kTile + half * 8;
  const __m256i low = _mm256_set1_epi8(15);
  __m256 sum[M];
  for (int m = 0; m < M; ++m) sum[m] = _mm256_setzero_ps();
  for (int64_t g = 0; g < groups; ++g, codes += kLines * 64) {
    for (int line = 0; line < kLines && half == 0; ++line)
      _mm_prefetch((const char*)codes + kAhead + line * 64, _MM_HINT_T0);
#if defined(__AVXVNNI__)
    __m256i dot[M];
    for (int m = 0; m < M; ++m) {
      const int32_t total = a.sums[(row + m) * groups + g];
      dot[m] = _mm256_set1_epi32((F == kInt8 ? -128 : F == kInt4 ? -8 : 0) * total);
    }
#else
    // INT4: eight products of at most 2 * 15 * 127 fit 16 bits. INT8: 32-bit sums at once.
    __m256i dot[M];
    for (int m = 0; m < M; ++m) dot[m] = _mm256_setzero_si256();
#endif
    for (int line = 0; line < kLines; ++line) {
      const __m256i v = _mm256_loadu_si256((const __m256i*)(codes + line * 64));
      if constexpr (F == kInt8) {
#if !defined(__AVXVNNI__)
        const __m256i weight = _mm256_xor_si256(v, _mm256_set1_epi8(-128));
        const __m256i size = _mm256_abs_epi8(weight);
#endif
        for (int m = 0; m < M; ++m) {
          const int8_t* x = a.codes + (row + m) * a.cols + g * kGroup + line * 4;
          const __m256i four = _mm256_set1_epi32(*(const int32_t*)x);
#if defined(__AVXVNNI__)
          dot[m] = _mm256_dpbusd_avx_epi32(dot[m], v, four);
#else
          const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(four, weight));
          dot[m] = _mm256_add_epi32(dot[m], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
        }
      } else {
        const __m256i first = _mm256_and_si256(v, low);
        const __m256i second = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
        for (int m = 0; m < M; ++m) {
          const int8_t* x = a.codes + (row + m) * a.cols + g * kGroup + line * 8;
          const __m256i four = _mm256_set1_epi32(*(const int32_t*)x);
          const __m256i next = _mm256_set1_epi32(*(const int32_t*)(x + 4));
#if defined(__AVXVNNI__)
          dot[m] = _mm256_dpbusd_avx_epi32(dot[m], first, four);
          dot[m] = _mm256_dpbusd_avx_epi32(dot[m], second, next);
#else
          dot[m] = _mm256_add_epi16(dot[m], _mm256_maddubs_epi16(first, four));
          dot[m] = _mm256_add_epi16(dot[m], _mm256_maddubs_epi16(second, next));
#endif
        }
      }
    }
    __m256 scale = _mm256_set1_ps(1.0f);
    if constexpr (F != kInt8) scale = _mm256_cvtph_ps(_mm_loadu_si128(scales + 2 * g));
    __m256i zero = _mm256_setzero_si256();
    if constexpr (F == kInt4Zero)
      zero = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)(zeros + g * kTile)));
    for (int m = 0; m < M; ++m) {
      __m256i exact = dot[m];
      const __m256i total = _mm256_set1_epi32(a.sums[(row + m) * groups + g]);
#if !defined(__AVXVNNI__)
      if constexpr (F != kInt8) exact = _mm256_madd_epi16(exact, _mm256_set1_epi16(1));
      if constexpr (F == kInt4) exact = _mm256_sub_epi32(exact, _mm256_slli_epi32(total, 3));
#endif
      if constexpr (F == kInt4Zero)
        exact = _mm256_sub_epi32(exact, _mm256_mullo_epi32(zero, total));
      __m256 factor = _mm256_set1_ps(a.scales[(row + m) * groups + g]);
      if constexpr (F != kInt8) factor = _mm256_mul_ps(factor, scale);
      sum[m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact), factor, sum[m]);
    }
  }
  for (int m = 0; m < M; ++m) {
    _mm256_storeu_ps(out[m] + half * 8, sum[m]);
    if constexpr (F == kInt8) {
      const int64_t first = tile * kTile + half * 8;
      const float* at = static_cast<const float*>(w.scales) + first;
      for (int r = 0; r < 8 && first + r < w.rows; ++r) out[m][half * 8 + r] *= at[r];
    }
  }
}

template <int M, int F>
inline void multiply_tile(const Matrix& w, int64_t tile, const Rounded& a, int64_t row,
                          float (*out)[kTile]) {
  multiply_half<M, F>(w, tile, 0, a, row, out);
  multiply_half<M, F>(w, tile, 1, a, row, out);
}

#endif

template <int F>
inline void multiply_rows(int64_t m, const Matrix& w, int64_t tile, const Rounded& a,
                          int64_t row, float (*out)[kTile]) {
  switch (m) {
    case 1: return multiply_tile<1, F>(w, tile, a, row, out);
    case 2: return multiply_tile<2, F>(w, tile, a, row, out);
    case 3: return multiply_tile<3, F>(w, tile, a, row, out);
    case 4: return multiply_tile<4, F>(w, tile, a, row, out);
#if defined(__AVX512VNNI__)
    case 5: return multiply_tile<5, F>(w, tile, a, row, out);
    case 6: return multiply_tile<6, F>(w, tile, a, row, out);
    case 7: return multiply_tile<7, F>(w, tile, a, row, out);
    case 8: return multiply_tile<8, F>(w, tile, a, row, out);
#endif
  }
}

// out[0..m) = rows [row, row + m) of a times one tile of w, bias included; m <= kRows.
inline void multiply(int64_t m, const Matrix& w, int64_t tile, const Rounded& a, int64_t row,
                     float (*out)[kTile]) {
  if (w.format == kInt8) multiply_rows<kInt8>(m, w, tile, a, row, out);
  if (w.format == kInt4) multiply_rows<kInt4>(m, w, tile, a, row, out);
  if (w.format == kInt4Zero) multiply_rows<kInt4Zero>(m, w, tile, a, row, out);
  if (!w.bias) return;
  const int64_t real = std::min<int64_t>(kTile, w.rows - tile * kTile);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t r = 0; r < real; ++r) out[i][r] += w.bias[tile * kTile + r];
}

inline int64_t tiles(const Matrix& w) { return (w.rows + kTile - 1) / kTile; }

// Has the first codes of this thread's share fetched while the activations are still rounded.
inline void fetch_share(const Team& team, int thread, const Matrix& w) {
  const int64_t bytes = w.cols * kTile / (w.format == kInt8 ? 1 : 2);
  const uint8_t* at = w.codes + team.first(tiles(w), thread) * bytes;
  for (int64_t i = 0; i < std::min<int64_t>(bytes, 2 * kAhead); i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(at + i), _MM_HINT_T0);
}

// y = or += w times the rounded rows; called by all threads of a region.
inline void multiply_all(Team& team, int thread, const Matrix& w, const Rounded& a, int64_t m,
                         float* y, int64_t y_stride, bool add) {
  int64_t begin, end;
  const int64_t bytes = w.cols * kTile / (w.format == kInt8 ? 1 : 2);
  const int64_t step = std::max<int64_t>(1, kPiece / bytes);
  while (team.claim(thread, tiles(w), step, begin, end)) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t real = std::min<int64_t>(kTile, w.rows - tile * kTile);
      for (int64_t row = 0; row < m; row += kRows) {
        alignas(64) float out[kRows][kTile];
        const int64_t now = std::min<int64_t>(kRows, m - row);
        multiply(now, w, tile, a, row, out);
        for (int64_t i = 0; i < now; ++i) {
          float* to = y + (row + i) * y_stride + tile * kTile;
          for (int64_t r = 0; r < real; ++r) to[r] = add ? to[r] + out[i][r] : out[i][r];
        }
      }
    }
  }
}

// The rounded rows of an input, for all threads of a region. A single row is rounded by every
// thread for itself, which takes less time than to wait for another.
template <int Purpose>
Rounded round_all(Team& team, int thread, const Input& in, int64_t m, int64_t cols,
                  const Rounded& shared) {
  float* temporary = scratch<float, 7>(cols);
  if (m == 1) {
    const Rounded own = rounded<Purpose>(1, cols);
    round_row(in, own, 0, temporary);
    return own;
  }
  int64_t begin, end;
  while (team.claim(thread, m, 1, begin, end)) round_row(in, shared, begin, temporary);
  team.meet();
  return shared;
}

inline void integer_linear(const Matrix& w, const Input& in, int64_t m, float* y,
                           int64_t y_stride, bool add, int threads) {
  const Rounded shared = rounded<1>(m, w.cols);
  parallel(threads, [&](Team& team, int thread) {
    fetch_share(team, thread, w);
    const Rounded a = round_all<3>(team, thread, in, m, w.cols, shared);
    multiply_all(team, thread, w, a, m, y, y_stride, add);
  });
}

// The MLP's part of a region. Group g of the hidden layer needs rows 32 g .. 32 g + 31 of gate
// and of up: whoever computes them applies SwiGLU and rounds them at once.
inline void multiply_mlp(Team& team, int thread, const Matrix& gate_up, const Matrix& down,
                         const Rounded& a, const Rounded& hidden, int64_t m, float* y,
                         int64_t y_stride) {
  const int64_t half = down.cols / kTile;  // tiles of gate
  int64_t begin, end;
  while (team.claim(thread, hidden.groups, 1, begin, end)) {
    for (int64_t row = 0; row < m; row += kRows) {
      const int64_t now = std::min<int64_t>(kRows, m - row);
      alignas(64) float gate[2][kRows][kTile], up[2][kRows][kTile];
      for (int t = 0; t < 2; ++t) multiply(now, gate_up, 2 * begin + t, a, row, gate[t]);
      for (int t = 0; t < 2; ++t) multiply(now, gate_up, half + 2 * begin + t, a, row, up[t]);
      for (int64_t i = 0; i < now; ++i) {
        float value[kGroup];
        for (int t = 0; t < 2; ++t)
          for (int r = 0; r < kTile; ++r)
            value[t * kTile + r] = silu(gate[t][i][r]) * up[t][i][r];
        round_group(value, hidden, row + i, begin);
      }
    }
  }
  fetch_share(team, thread, down);
  team.meet();
  multiply_all(team, thread, down, hidden, m, y, y_stride, true);
}

inline void integer_mlp(const Matrix& gate_up, const Matrix& down, const Input& in, int64_t m,
                        float* y, int64_t y_stride, int threads) {
  const Rounded shared = rounded<1>(m, gate_up.cols);
  const Rounded hidden = rounded<2>(m, down.cols);
  parallel(threads, [&](Team& team, int thread) {
    fetch_share(team, thread, gate_up);
    const Rounded a = round_all<3>(team, thread, in, m, gate_up.cols, shared);
    multiply_mlp(team, thread, gate_up, down, a, hidden, m, y, y_stride);
  });
}

}  // namespace
}  // namespace gw
