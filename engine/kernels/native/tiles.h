// Products of many rows in BF16 with AMX: the weights of a pair of tiles are widened into the
// second-level cache once and multiplied with every row, summed in FP32 inside the tile
// registers (Intel's Architecture Instruction Set Extensions, chapter 3, TDPBF16PS).
#pragma once
#include <immintrin.h>

#include "integer.h"

namespace gw {
namespace {

constexpr int64_t kDepth = 32;             // columns in one tile of BF16
constexpr int64_t kTileItems = 16 * kDepth;  // of a tile of activations or of weights
constexpr int64_t kMaxColumns = 1280;      // of activations that stay in the second-level cache

struct alignas(64) TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Tile registers for the life of the object; what was configured before comes back after.
class Tiles {
 public:
  Tiles() {
    _tile_storeconfig(&before_);
    const TileConfig config;
    // GCC's _tile_loadconfig names only the first bytes as read: without this the others may
    // never be written.
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  ~Tiles() {
    asm volatile("" : : "r"(&before_) : "memory");
    if (before_.palette) {
      _tile_loadconfig(&before_);
    } else {
      _tile_release();
    }
  }

 private:
  TileConfig before_;
};

// Activations as tiles: [m / 16, cols / 32, 16, 32] BF16, rows past m are zero.
struct Wide {
  uint16_t* items;
  int64_t blocks, depth;  // m / 16, cols / 32, both rounded up
  const uint16_t* at(int64_t block, int64_t column) const {
    return items + (block * depth + column) * kTileItems;
  }
};

template <int Purpose>
Wide wide(int64_t m, int64_t cols) {
  const int64_t blocks = (m + 15) / 16, depth = cols / kDepth;
  return {scratch<uint16_t, Purpose>(blocks * depth * kTileItems), blocks, depth};
}

inline void widen_all(Team& team, int thread, const Input& in, const Wide& to, int64_t m) {
  const int64_t cols = to.depth * kDepth;
  float* temporary = scratch<float, 7>(cols);
  int64_t block, end;
  while (team.claim(thread, to.blocks, 1, block, end)) {
    uint16_t* items = to.items + block * to.depth * kTileItems;
    for (int64_t r = 0; r < 16; ++r) {
      const int64_t row = block * 16 + r;
      const float* x = row < m ? prepare_row(in, row, cols, temporary) : nullptr;
      for (int64_t d = 0; d < to.depth; ++d) {
        uint16_t* out = items + d * kTileItems + r * kDepth;
        if (!x) {
          std::memset(out, 0, kDepth * sizeof(uint16_t));
          continue;
        }
        const __m512bh pair = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + d * kDepth + 16),
                                                  _mm512_loadu_ps(x + d * kDepth));
        _mm512_storeu_si512(out, (__m512i)pair);
      }
    }
  }
  team.meet();
}

// 16 rows of four codes each to two lines of BF16 pairs: line p, lane n = columns 2p, 2p + 1.
inline void widen_line(__m512i codes, __m512 scale, __m512 shift, uint16_t* out) {
  const __m512i byte = _mm512_set1_epi32(255);
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i column[4] = {_mm512_and_si512(codes, byte),
                             _mm512_and_si512(_mm512_srli_epi32(codes, 8), byte),
                             _mm512_and_si512(_mm512_srli_epi32(codes, 16), byte),
                             _mm512_srli_epi32(codes, 24)};
  __m512 value[4];
  for (int i = 0; i < 4; ++i)
    value[i] = _mm512_fmsub_ps(_mm512_cvtepi32_ps(column[i]), scale, shift);
  for (int p = 0; p < 2; ++p) {
    const __m512i pair = (__m512i)_mm512_cvtne2ps_pbh(value[2 * p + 1], value[2 * p]);
    _mm512_store_si512(out + p * 32, _mm512_permutexvar_epi16(order, pair));
  }
}

// Columns [32 d0, 32 (d0 + depth)) of one tile of weights, as tiles of BF16 [depth, 16, 16, 2].
template <int F>
void widen_weights(const Matrix& w, int64_t tile, int64_t d0, int64_t depth, uint16_t* out) {
  const int64_t groups = w.cols / kGroup;
  constexpr int kLines = F == kInt8 ? 8 : 4;
  const uint8_t* codes = w.codes + (tile * groups + d0) * kLines * 64;
  const __m256i* scales = static_cast<const __m256i*>(w.scales) + tile * groups + d0;
  const __m128i* zeros = reinterpret_cast<const __m128i*>(w.zeros) + tile * groups + d0;
  const __m512i low = _mm512_set1_epi8(15);
  __m512 scale = _mm512_setzero_ps(), shift = scale;
  if constexpr (F == kInt8) {
    const __mmask16 real = (1u << std::min<int64_t>(kTile, w.rows - tile * kTile)) - 1;
    scale = _mm512_maskz_loadu_ps(real, static_cast<const float*>(w.scales) + tile * kTile);
    shift = _mm512_mul_ps(scale, _mm512_set1_ps(128.0f));
  }
  for (int64_t g = 0; g < depth; ++g, codes += kLines * 64, out += kTileItems) {
    if constexpr (F != kInt8) {
      scale = _mm512_cvtph_ps(_mm256_loadu_si256(scales + g));
      __m512 zero = _mm512_set1_ps(8.0f);
      if constexpr (F == kInt4Zero)
        zero = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(zeros + g)));
      shift = _mm512_mul_ps(scale, zero);
    }
    for (int line = 0; line < kLines; ++line) {
      const __m512i v = _mm512_loadu_si512(codes + line * 64);
      if constexpr (F == kInt8) {
        widen_line(v, scale, shift, out + line * 64);
      } else {
        widen_line(_mm512_and_si512(v, low), scale, shift, out + line * 128);
        widen_line(_mm512_and_si512(_mm512_srli_epi16(v, 4), low), scale, shift,
                   out + line * 128 + 64);
      }
    }
  }
}

inline void widen_tile(const Matrix& w, int64_t tile, int64_t d0, int64_t depth, uint16_t* out) {
  if (tile >= tiles(w)) {
    std::memset(out, 0, depth * kTileItems * sizeof(uint16_t));
    return;
  }
  if (w.format == kInt8) widen_weights<kInt8>(w, tile, d0, depth, out);
  if (w.format == kInt4) widen_weights<kInt4>(w, tile, d0, depth, out);
  if (w.format == kInt4Zero) widen_weights<kInt4Zero>(w, tile, d0, depth, out);
}

// Tile registers 0..3 = or += two blocks of activations times two tiles of weights.
inline void multiply_pair(const uint16_t* a0, const uint16_t* a1, const uint16_t* b0,
                          const uint16_t* b1, int64_t depth) {
  for (int64_t d = 0; d < depth; ++d) {
    _tile_loadd(4, a0 + d * kTileItems, 64);
    _tile_loadd(6, b0 + d * kTileItems, 64);
    _tile_loadd(5, a1 + d * kTileItems, 64);
    _tile_loadd(7, b1 + d * kTileItems, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

inline void zero_tiles() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// Two by two tiles of results: [block][tile][16][16].
using Results = float[2][2][16][kTile];

inline void store_tiles(Results& c) {
  _tile_stored(0, c[0][0], 64);
  _tile_stored(1, c[0][1], 64);
  _tile_stored(2, c[1][0], 64);
  _tile_stored(3, c[1][1], 64);
}

// y = or += w times the rows; called by all threads of a region with tiles configured.
inline void widened_all(Team& team, int thread, const Matrix& w, const Wide& a, int64_t m,
                        float* y, int64_t y_stride, bool add) {
  const int64_t pieces = (a.depth * kDepth + kMaxColumns - 1) / kMaxColumns;
  const int64_t most = (a.depth + pieces - 1) / pieces;
  uint16_t* b = scratch<uint16_t, 8>(2 * most * kTileItems);
  for (int64_t d0 = 0; d0 < a.depth; d0 += most) {
    const int64_t depth = std::min(most, a.depth - d0);
    const bool first = d0 == 0;
    int64_t pair, end;
    while (team.claim(thread, (tiles(w) + 1) / 2, 1, pair, end)) {
      for (int t = 0; t < 2; ++t)
        widen_tile(w, 2 * pair + t, d0, depth, b + t * depth * kTileItems);
      for (int64_t block = 0; block < a.blocks; block += 2) {
        const uint16_t* a0 = a.at(block, d0);
        const uint16_t* a1 = block + 1 < a.blocks ? a.at(block + 1, d0) : a0;
        const int64_t column = pair * 2 * kTile, row = block * 16;
        float* to = y + row * y_stride + column;
        const bool whole = column + 2 * kTile <= w.rows && row + 32 <= m;
        const int64_t bytes = y_stride * sizeof(float);
        if (whole && (add || !first)) {
          _tile_loadd(0, to, bytes);
          _tile_loadd(1, to + kTile, bytes);
          _tile_loadd(2, to + 16 * y_stride, bytes);
          _tile_loadd(3, to + 16 * y_stride + kTile, bytes);
        } else {
          zero_tiles();
        }
        multiply_pair(a0, a1, b, b + depth * kTileItems, depth);
        if (whole && !(w.bias && first)) {
          _tile_stored(0, to, bytes);
          _tile_stored(1, to + kTile, bytes);
          _tile_stored(2, to + 16 * y_stride, bytes);
          _tile_stored(3, to + 16 * y_stride + kTile, bytes);
          continue;
        }
        alignas(64) Results c;
        store_tiles(c);
        const bool sum = !whole && (add || !first);
        for (int64_t i = 0; i < std::min<int64_t>(32, m - row); ++i) {
          for (int64_t r = 0; r < std::min<int64_t>(2 * kTile, w.rows - column); ++r) {
            float value = c[i / 16][r / kTile][i % 16][r % kTile];
            if (w.bias && first) value += w.bias[column + r];
            to[i * y_stride + r] = sum ? to[i * y_stride + r] + value : value;
          }
        }
      }
    }
    team.meet();
  }
}

inline void widened_linear(const Matrix& w, const Input& in, int64_t m, float* y,
                           int64_t y_stride, bool add, int threads) {
  const Wide a = wide<9>(m, w.cols);
  parallel(threads, [&](Team& team, int thread) {
    const Tiles registers;
    widen_all(team, thread, in, a, m);
    widened_all(team, thread, w, a, m, y, y_stride, add);
  });
}

// A tile of gate and its twin of up are multiplied together, so SwiGLU's result goes straight
// into the tiles that `down` reads.
inline void widened_mlp(const Matrix& gate_up, const Matrix& down, const Input& in, int64_t m,
                        float* y, int64_t y_stride, int threads) {
  const Wide a = wide<9>(m, gate_up.cols);
  const Wide hidden = wide<10>(m, down.cols);
  const int64_t half = down.cols / kTile;
  parallel(threads, [&](Team& team, int thread) {
    const Tiles registers;
    widen_all(team, thread, in, a, m);
    uint16_t* b = scratch<uint16_t, 8>(2 * a.depth * kTileItems);
    int64_t tile, end;
    while (team.claim(thread, half, 1, tile, end)) {
      widen_tile(gate_up, tile, 0, a.depth, b);
      widen_tile(gate_up, half + tile, 0, a.depth, b + a.depth * kTileItems);
      for (int64_t block = 0; block < a.blocks; block += 2) {
        const bool two = block + 1 < a.blocks;
        zero_tiles();
        multiply_pair(a.at(block, 0), a.at(two ? block + 1 : block, 0), b,
                      b + a.depth * kTileItems, a.depth);
        alignas(64) Results c;
        store_tiles(c);
        for (int64_t i = 0; i < (two ? 2 : 1); ++i) {
          uint16_t* out = hidden.items + ((block + i) * hidden.depth + tile / 2) * kTileItems +
                          (tile % 2) * kTile;
          for (int r = 0; r < 16; ++r) {
            float value[kTile];
            for (int n = 0; n < kTile; ++n) value[n] = silu(c[i][0][r][n]) * c[i][1][r][n];
            for (int n = 0; n < kTile; ++n) out[r * kDepth + n] = to_bf16(value[n]);
          }
        }
      }
    }
    team.meet();
    widened_all(team, thread, down, hidden, m, y, y_stride, true);
  });
}

}  // namespace
}  // namespace gw
