// Kernels for AVX2 with FMA and F16C: every x86-64 chip since 2015.
#include "team.h"
#include "step.h"
#include "panel.h"
#include "top.h"

namespace gw {
namespace {

// From so many rows on, spreading the codes costs less than unpacking them again and again.
constexpr int64_t kManyRows = 24;

void linear(const Matrix& w, const Input& in, int64_t m, float* y, int64_t y_stride, bool add,
            int threads) {
  (m < kManyRows ? integer_linear : panel_linear)(w, in, m, y, y_stride, add, threads);
}

void mlp(const Matrix& gate_up, const Matrix& down, const Input& in, int64_t m, float* y,
         int64_t y_stride, int threads) {
  (m < kManyRows ? integer_mlp : panel_mlp)(gate_up, down, in, m, y, y_stride, threads);
}

}  // namespace

const Kernels& avx2_kernels() {
  static const Kernels kernels{"avx2", linear, mlp, decode_attention, step, top, rotate_rows};
  return kernels;
}
}  // namespace gw
