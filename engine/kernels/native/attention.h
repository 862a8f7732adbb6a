// Decode attention over a shared prompt and each candidate's tail, and the rotary embedding.
#pragma once
#include "rows.h"

namespace gw {
namespace {

constexpr int64_t kBlock = 64;  // tokens whose keys stay in the first-level cache

template <int Size>
inline float dot(const float* a, const float* b) {
  float sum = 0;
  for (int i = 0; i < Size; ++i) sum += a[i] * b[i];
  return sum;
}

// Scores of `count` tokens for each query of a group: scores[h * stride + t].
template <int Size>
inline void score(const float* q, int64_t group, const float* keys, int64_t count, float* scores,
                  int64_t stride) {
  for (int64_t from = 0; from < count; from += kBlock) {
    const int64_t to = std::min(from + kBlock, count);
    for (int64_t h = 0; h < group; ++h)
      for (int64_t t = from; t < to; ++t)
        scores[h * stride + t] = dot<Size>(q + h * Size, keys + t * Size);
  }
}

// out[h] += scores[h][t] * values[t].
template <int Size>
inline void gather(const float* scores, int64_t stride, int64_t group, const float* values,
                   int64_t count, float* out) {
  for (int64_t from = 0; from < count; from += kBlock) {
    const int64_t to = std::min(from + kBlock, count);
    for (int64_t h = 0; h < group; ++h) {
      float sum[Size];
      for (int i = 0; i < Size; ++i) sum[i] = out[h * Size + i];
      for (int64_t t = from; t < to; ++t) {
        const float p = scores[h * stride + t];
        for (int i = 0; i < Size; ++i) sum[i] += p * values[t * Size + i];
      }
      for (int i = 0; i < Size; ++i) out[h * Size + i] = sum[i];
    }
  }
}

// One candidate and key/value head: rotates, stores the new key and value, attends.
template <int Size>
void decode_item(const Decode& d, int64_t candidate, int64_t head) {
  const int64_t group = d.heads / d.kv_heads, half = Size / 2;
  const float* row = d.qkv + candidate * (d.heads + 2 * d.kv_heads) * Size;
  const int64_t position = d.prompt + d.tail, total = position + 1;
  const float *cos = d.cos + position * half, *sin = d.sin + position * half;
  const int64_t tail_at = (candidate * d.kv_heads + head) * d.tail_stride * Size;
  float *tail_keys = d.tail_keys + tail_at, *tail_values = d.tail_values + tail_at;
  rotate_head(row + (d.heads + head) * Size, cos, sin, half, 1.0f, tail_keys + d.tail * Size);
  std::memcpy(tail_values + d.tail * Size, row + (d.heads + d.kv_heads + head) * Size,
              Size * sizeof(float));
  float* q = scratch<float, 20>(group * Size);
  float* scores = scratch<float, 21>(group * total);
  const float scale = 1.0f / std::sqrt(static_cast<float>(Size));
  for (int64_t h = 0; h < group; ++h)
    rotate_head(row + (head * group + h) * Size, cos, sin, half, scale, q + h * Size);
  const int64_t prompt_at = head * d.prompt_stride * Size;
  score<Size>(q, group, d.keys + prompt_at, d.prompt, scores, total);
  score<Size>(q, group, tail_keys, d.tail + 1, scores + d.prompt, total);
  float* out = d.out + (candidate * d.heads + head * group) * Size;
  for (int64_t h = 0; h < group; ++h) {
    float* s = scores + h * total;
    float peak = s[0];
    for (int64_t t = 1; t < total; ++t) peak = larger(peak, s[t]);
    float sum = 0;
    for (int64_t t = 0; t < total; ++t) {
      s[t] = exp_fast(s[t] - peak);
      sum += s[t];
    }
    const float inverse = 1.0f / sum;
    for (int64_t t = 0; t < total; ++t) s[t] *= inverse;
    for (int64_t i = 0; i < Size; ++i) out[h * Size + i] = 0;
  }
  gather<Size>(scores, total, group, d.values + prompt_at, d.prompt, out);
  gather<Size>(scores + d.prompt, total, group, tail_values, d.tail + 1, out);
}

inline void decode_item(const Decode& d, int64_t item) {
  const int64_t candidate = item / d.kv_heads, head = item % d.kv_heads;
  switch (d.size) {
    case 16: return decode_item<16>(d, candidate, head);
    case 32: return decode_item<32>(d, candidate, head);
    case 64: return decode_item<64>(d, candidate, head);
    case 128: return decode_item<128>(d, candidate, head);
  }
}

inline void decode_attention(const Decode& d, int threads) {
  const int64_t items = d.n * d.kv_heads;
  parallel(static_cast<int>(std::min<int64_t>(threads, items)), [&](Team& team, int thread) {
    int64_t begin, end;
    while (team.claim(thread, items, 1, begin, end)) decode_item(d, begin);
  });
}

inline void rotate_rows(const Rotate& r, int threads) {
  const int64_t half = r.size / 2, width = (r.heads + 2 * r.kv_heads) * r.size;
  parallel(threads, [&](Team& team, int thread) {
    float* temporary = scratch<float, 22>(r.size);
    int64_t begin, end;
    while (team.claim(thread, r.m, 16, begin, end)) {
      for (int64_t i = begin; i < end; ++i) {
        const float* row = r.qkv + i * width;
        const int64_t at = r.start + i;
        const float *cos = r.cos + at * half, *sin = r.sin + at * half;
        for (int64_t h = 0; h < r.heads; ++h) {
          const int64_t to = (h * r.m + i) * r.size;
          if (!r.bf16) {
            rotate_head(row + h * r.size, cos, sin, half, 1.0f, (float*)r.q_out + to);
            continue;
          }
          rotate_head(row + h * r.size, cos, sin, half, 1.0f, temporary);
          uint16_t* out = (uint16_t*)r.q_out + to;
          for (int64_t c = 0; c < r.size; ++c) out[c] = to_bf16(temporary[c]);
        }
        for (int64_t h = 0; h < r.kv_heads; ++h) {
          const int64_t to = (h * r.stride + at) * r.size;
          rotate_head(row + (r.heads + h) * r.size, cos, sin, half, 1.0f, r.keys + to);
          std::memcpy(r.values + to, row + (r.heads + r.kv_heads + h) * r.size,
                      r.size * sizeof(float));
        }
      }
    }
  });
}

}  // namespace
}  // namespace gw
