// Kernels for AVX2 with FMA and F16C: every x86-64 chip since 2015.
#include "team.h"
#include "step.h"
#include "top.h"

namespace gw {
const Kernels& avx2_kernels() {
  static const Kernels kernels{"avx2",           integer_linear, integer_mlp,
                               decode_attention, step, top, rotate_rows};
  return kernels;
}
}  // namespace gw
