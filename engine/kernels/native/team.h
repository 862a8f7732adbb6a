// One parallel region and what its threads need to work together.
//
// The threads are OpenMP's, so they are PyTorch's own: the library is linked against nothing
// and finds the runtime that PyTorch loaded. Inside a region threads meet at a barrier that
// spins for a moment and then yields, because the steps between two barriers last
// microseconds, and because a thread may share its core with someone else's.
#pragma once
#include <immintrin.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace gw {

class Team {
 public:
  static constexpr int kMost = 64;  // threads

  // Called first by every thread, all with the number that the runtime really gave.
  void join(int size) { size_ = size; }

  // Waits until all threads of the region have come here; claims start anew.
  void meet() {
    const int now = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      for (int i = 0; i < size_; ++i) next_[i].done.store(0, std::memory_order_relaxed);
      round_.store(now + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == now; ++spins)
      spins < kSpins ? _mm_pause() : (void)sched_yield();
  }

  // The share of 0..total that is this thread's before others help it.
  int64_t first(int64_t total, int thread) const { return total * thread / size_; }

  // Hands out pieces [begin, end) of 0..total until none is left: a thread's own share in
  // order, then what is left of the others', so that a thread that lost its core for a while
  // holds nobody up. Used by all threads of a region between two meetings.
  bool claim(int thread, int64_t total, int64_t step, int64_t& begin, int64_t& end) {
    for (int i = 0; i < size_; ++i) {
      const int whose = (thread + i) % size_;
      const int64_t from = first(total, whose), to = first(total, whose + 1);
      if (from + next_[whose].done.load(std::memory_order_relaxed) >= to) continue;
      begin = from + next_[whose].done.fetch_add(step, std::memory_order_relaxed);
      end = std::min(begin + step, to);
      if (begin < to) return true;
    }
    return false;
  }

 private:
  static constexpr int kSpins = 2000;
  struct alignas(64) Share {
    std::atomic<int64_t> done{0};
  };
  std::atomic<int> size_{1};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> round_{0};
  Share next_[kMost];
};

// Runs work(team, thread) on so many threads, at most `Team::kMost`.
template <class Work>
void parallel(int threads, Work&& work) {
  Team team;
  if (threads <= 1) {
    work(team, 0);
    return;
  }
#pragma omp parallel num_threads(std::min(threads, Team::kMost))
  {
    team.join(omp_get_num_threads());
    work(team, omp_get_thread_num());
  }
}

}  // namespace gw
