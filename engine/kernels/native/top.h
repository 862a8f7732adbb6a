// From logits to the best tokens, and the exact logits of those that a sketch found.
//
// A sketch of the head gives every token an approximate logit from a few leading directions of
// the hidden state. The tokens near the top are then multiplied exactly. How far the sketch was
// off on them says how far it may be off elsewhere: all tokens that could still win by that are
// multiplied too, up to kRivals * k of them.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "integer.h"

namespace gw {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr int64_t kSample = 2048;  // logits looked at to guess a threshold
constexpr int64_t kPart = 4096;    // logits claimed at a time
constexpr double kSigmas = 5.0;    // mean errors of the sketch that a token left out may have
constexpr int64_t kRivals = 8;     // times k: most tokens multiplied exactly; where so many are
                                   // alike, it matters little which of them is picked

// A threshold that some `want` of the logits reach.
inline float guess_threshold(const float* logits, int64_t count, int64_t want) {
  const int64_t stride = std::max<int64_t>(1, count / kSample);
  float* sample = scratch<float, 40>(count / stride + 1);
  int64_t n = 0;
  for (int64_t i = 0; i < count; i += stride) sample[n++] = logits[i];
  // A third more than wanted, because a sample of so few is off by a quarter.
  const int64_t rank = want * 4 / 3 / stride + 1;
  if (rank >= n) return kNever;
  std::nth_element(sample, sample + rank, sample + n, std::greater<float>());
  return sample[rank];
}

// A hidden state laid out to meet a tile: [4][cols / 4], and its sum.
struct Spread {
  float* items;
  int64_t lines;
  float total;
};

inline Spread spread(const float* x, int64_t cols) {
  const Spread to{scratch<float, 41>(cols), cols / 4, 0};
  float total = 0;
  for (int64_t j = 0; j < to.lines; ++j)
    for (int i = 0; i < 4; ++i) to.items[i * to.lines + j] = x[4 * j + i];
  for (int64_t i = 0; i < cols; ++i) total += x[i];
  return {to.items, to.lines, total};
}

// The product of one row of an INT8 matrix and x, with x in FP32.
inline float exact_product(const Matrix& w, const Spread& x, int64_t row) {
  const uint8_t* codes = w.codes + row / kTile * x.lines * 64 + row % kTile * 4;
  uint32_t* words = scratch<uint32_t, 42>(x.lines);
  for (int64_t j = 0; j < x.lines; ++j) std::memcpy(words + j, codes + j * 64, 4);
  const float *a = x.items, *b = a + x.lines, *c = b + x.lines, *d = c + x.lines;
  float sum = 0;
  for (int64_t j = 0; j < x.lines; ++j) {
    const int32_t word = static_cast<int32_t>(words[j] ^ 0x80808080u);  // codes as signed bytes
    sum += static_cast<float>(word << 24 >> 24) * a[j] + static_cast<float>(word << 16 >> 24) * b[j] +
           static_cast<float>(word << 8 >> 24) * c[j] + static_cast<float>(word >> 24) * d[j];
  }
  return sum * static_cast<const float*>(w.scales)[row];
}

// What one thread found in its parts of a row of logits.
struct Found {
  std::vector<int32_t> ids;
  double count = 0, square = 0;  // of (exact - sketch)^2
  float peak = kNever;
  double sum = 0;  // of e^(logit - peak of all)
};

// Takes in the tokens with a logit in [from, below), and makes their logits exact.
inline void take(Team& team, int thread, const Top& t, const Spread& x, float* logits, float from,
                 float below, Found& found) {
  int64_t begin, end;
  while (team.claim(thread, t.vocab, kPart, begin, end)) {
    const size_t known = found.ids.size();
    for (int64_t i = begin; i < end; ++i)
      if (logits[i] >= from && logits[i] < below) found.ids.push_back(static_cast<int32_t>(i));
    for (size_t n = known; n < found.ids.size(); ++n) {
      float& logit = logits[found.ids[n]];
      if (t.exact && logit != kNever) {
        const float exact = exact_product(*t.exact, x, found.ids[n]);
        const double off = exact - logit;
        found.count += 1;
        found.square += off * off;
        logit = exact;
      }
      found.peak = larger(found.peak, logit);
    }
  }
  team.meet();
}

// The lowest sketched logit whose token might still be the best. The errors are those of
// tokens that the sketch put high, so their mean is no guide: their size is.
inline float lowest_rival(const std::vector<Found>& all, float peak) {
  double count = 1e-9, square = 0;
  for (const Found& f : all) {
    count += f.count;
    square += f.square;
  }
  return static_cast<float>(peak - kSigmas * std::sqrt(square / count));
}

inline void write_top(const Top& t, int64_t row, const float* logits, std::vector<Found>& all) {
  static thread_local std::vector<int32_t> ids;
  ids.clear();
  for (const Found& f : all) ids.insert(ids.end(), f.ids.begin(), f.ids.end());
  const auto better = [&](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  // A token can be found twice: its exact logit may lie where rivals were looked for.
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  const size_t kept = std::min<size_t>(t.k, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + kept, ids.end(), better);
  for (int64_t n = 0; n < t.k; ++n) {
    const bool real = n < static_cast<int64_t>(kept);
    t.ids[row * t.k + n] = real ? ids[n] : 0;
    t.values[row * t.k + n] = real ? logits[ids[n]] : kNever;
  }
}

// The sketch's logits, by all threads of a region.
inline void sketch(Team& team, int thread, const Top& t, float* projected, const Rounded& wide,
                   const Rounded& narrow) {
  const Matrix &into = *t.projection, &out = *t.table;
  fetch_share(team, thread, into);
  Rounded a = round_all<3>(team, thread, t.input, t.rows, into.cols, wide);
  multiply_all(team, thread, into, a, t.rows, projected, into.rows, false);
  fetch_share(team, thread, out);
  team.meet();
  const Input second{projected, into.rows, nullptr, 0, 0};
  a = round_all<3>(team, thread, second, t.rows, out.cols, narrow);
  multiply_all(team, thread, out, a, t.rows, t.logits, t.vocab, false);
  team.meet();
}

inline void top(const Top& t, int threads) {
  std::vector<Found> all(Team::kMost);
  float threshold = 0, least = 0;
  Rounded wide{}, narrow{};
  float* projected = nullptr;
  if (t.projection) {
    wide = rounded<1>(t.rows, t.projection->cols);
    narrow = rounded<2>(t.rows, t.table->cols);
    projected = scratch<float, 44>(t.rows * t.projection->rows);
  }
  parallel(threads, [&](Team& team, int thread) {
    if (t.projection) sketch(team, thread, t, projected, wide, narrow);
    float* temporary = scratch<float, 43>(t.exact ? t.exact->cols : 1);
    for (int64_t row = 0; row < t.rows; ++row) {
      float* logits = t.logits + row * t.vocab;
      Found& mine = all[thread];
      mine.ids.clear();
      mine = Found{std::move(mine.ids)};
      Spread x{};
      if (t.exact) x = spread(prepare_row(t.input, row, t.exact->cols, temporary), t.exact->cols);
      if (thread == 0) {
        for (int64_t n = 0; n < t.banned_count; ++n) logits[t.banned[n]] = kNever;
        threshold = guess_threshold(logits, t.vocab, t.k);
        least = t.exact ? guess_threshold(logits, t.vocab, kRivals * t.k) : threshold;
      }
      team.meet();
      take(team, thread, t, x, logits, threshold, -kNever, mine);
      float best = kNever;
      for (const Found& f : all) best = larger(best, f.peak);
      const float rival = t.exact ? larger(least, lowest_rival(all, best)) : threshold;
      team.meet();  // all have read what `take` adds to next
      if (rival < threshold) take(team, thread, t, x, logits, rival, threshold, mine);
      for (const Found& f : all) best = larger(best, f.peak);
      int64_t begin, end;
      while (team.claim(thread, t.vocab, kPart, begin, end)) {
        float sum = 0;
        for (int64_t i = begin; i < end; ++i) sum += exp_fast(logits[i] - best);
        mine.sum += sum;
      }
      team.meet();
      if (thread == 0) {
        double sum = 0;
        for (const Found& f : all) sum += f.sum;
        t.log_total[row] = best + static_cast<float>(std::log(sum));
        write_top(t, row, logits, all);
      }
      team.meet();
    }
  });
}

}  // namespace
}  // namespace gw
