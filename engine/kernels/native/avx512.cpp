// Kernels for AVX-512 with VNNI.
#include "team.h"
#include "step.h"
#include "top.h"

namespace gw {
const Kernels& avx512_kernels() {
  static const Kernels kernels{"avx512", integer_linear, integer_mlp, decode_attention,
                               step, top, rotate_rows};
  return kernels;
}
}  // namespace gw
