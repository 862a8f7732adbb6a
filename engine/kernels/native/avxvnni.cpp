// Kernels for AVX-VNNI: laptop chips since 2021 that multiply bytes but have no AVX-512.
#include "team.h"
#include "step.h"
#include "top.h"

namespace gw {
const Kernels& avxvnni_kernels() {
  static const Kernels kernels{"avxvnni", integer_linear, integer_mlp, decode_attention,
                               step, top, rotate_rows};
  return kernels;
}
}  // namespace gw
