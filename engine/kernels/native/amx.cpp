// Kernels for AMX: many rows in tile registers, a few as on AVX-512.
#include "team.h"
#include "step.h"
#include "tiles.h"
#include "top.h"

namespace gw {
namespace {

// From so many rows on, widening the weights costs less than multiplying integers.
constexpr int64_t kManyRows = 24;

void linear(const Matrix& w, const Input& in, int64_t m, float* y, int64_t y_stride, bool add,
            int threads) {
  (m < kManyRows ? integer_linear : widened_linear)(w, in, m, y, y_stride, add, threads);
}

void mlp(const Matrix& gate_up, const Matrix& down, const Input& in, int64_t m, float* y,
         int64_t y_stride, int threads) {
  (m < kManyRows ? integer_mlp : widened_mlp)(gate_up, down, in, m, y, y_stride, threads);
}

}  // namespace

const Kernels& amx_kernels() {
  static const Kernels kernels{"amx", linear, mlp, decode_attention, step, top, rotate_rows};
  return kernels;
}
}  // namespace gw
