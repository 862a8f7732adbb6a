// A whole decode step in one parallel region: between two products the threads only meet at a
// spinning barrier, so that the memory bus hardly ever rests.
#pragma once
#include "attention.h"
#include "integer.h"

namespace gw {
namespace {

// The attention of one request in one block.
inline Decode request_part(const Step& s, const Request& r, int64_t block, const float* qkv,
                           float* out) {
  const int64_t tail = block * r.n * s.kv_heads * r.tail_stride * s.size;
  return {qkv, out, s.cos, s.sin, r.keys[block], r.values[block], r.tail_keys + tail,
          r.tail_values + tail, r.n, s.heads, s.kv_heads, s.size, r.prompt_stride, r.prompt,
          r.tail_stride, r.tail};
}

inline void attend_all(Team& team, int thread, const Step& s, int64_t block, const float* qkv,
                       float* attended) {
  const int64_t width = (s.heads + 2 * s.kv_heads) * s.size, hidden = s.heads * s.size;
  int64_t item, end;
  while (team.claim(thread, s.rows * s.kv_heads, 1, item, end)) {
    int64_t row = 0;
    for (int64_t i = 0; i < s.count; row += s.requests[i++].n) {
      const Request& r = s.requests[i];
      const int64_t own = item - row * s.kv_heads;
      if (own >= r.n * s.kv_heads) continue;
      decode_item(request_part(s, r, block, qkv + row * width, attended + row * hidden), own);
      break;
    }
  }
}

inline void step(const Step& s, int threads) {
  const Block& like = s.blocks[s.first];
  const int64_t m = s.rows, hidden = like.qkv->cols, width = like.qkv->rows;
  const int64_t attention = like.out->cols;
  float* qkv = scratch<float, 30>(m * width);
  float* attended = scratch<float, 31>(m * attention);
  const Rounded shared = rounded<1>(m, std::max(hidden, attention));
  const Rounded inner = rounded<2>(m, like.down->cols);
  const auto fit = [](Rounded r, int64_t cols) {
    r.cols = cols;
    r.groups = cols / kGroup;
    return r;
  };
  parallel(threads, [&](Team& team, int thread) {
    for (int64_t i = s.first; i < s.last; ++i) {
      const Block& b = s.blocks[i];
      const Input first{s.x, hidden, b.attention_norm, s.eps, 0};
      Rounded a = round_all<3>(team, thread, first, m, hidden, fit(shared, hidden));
      multiply_all(team, thread, *b.qkv, a, m, qkv, width, false);
      fetch_share(team, thread, *b.out);
      team.meet();
      attend_all(team, thread, s, i, qkv, attended);
      team.meet();
      const Input second{attended, attention, nullptr, 0, 0};
      a = round_all<3>(team, thread, second, m, attention, fit(shared, attention));
      multiply_all(team, thread, *b.out, a, m, s.x, hidden, true);
      fetch_share(team, thread, *b.gate_up);
      team.meet();
      const Input third{s.x, hidden, b.mlp_norm, s.eps, 0};
      a = round_all<3>(team, thread, third, m, hidden, fit(shared, hidden));
      multiply_mlp(team, thread, *b.gate_up, *b.down, a, inner, m, s.x, hidden);
      if (i + 1 < s.last) fetch_share(team, thread, *s.blocks[i + 1].qkv);
      team.meet();
    }
  });
}

}  // namespace
}  // namespace gw
