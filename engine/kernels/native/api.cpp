// The library's C functions: which kernels this chip runs, and calls into them.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "ghostwright.h"

namespace gw {
namespace {

// Asks Linux for the tile registers (Documentation/arch/x86/xstate.rst).
bool tiles_permitted() {
#if defined(__linux__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

struct Cpuid {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  Cpuid(uint32_t leaf, uint32_t sub) {
    asm volatile("cpuid" : "=a"(eax), "=b"(ebx), "=c"(ecx), "=d"(edx) : "a"(leaf), "c"(sub));
  }
};

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         (Cpuid(1, 0).ecx >> 29 & 1);  // F16C
}

// GCC knows no names for the newer ones.
bool has_avxvnni() { return has_avx2() && (Cpuid(7, 1).eax >> 4 & 1); }

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

bool has_amx() {
  const uint32_t edx = Cpuid(7, 0).edx;
  const bool bf16 = edx >> 22 & 1, tile = edx >> 24 & 1;
  return has_avx512() && (Cpuid(7, 1).eax >> 5 & 1) && bf16 && tile && tiles_permitted();
}

struct Choice {
  const char* name;
  bool (*runs)();
  const Kernels& (*kernels)();
};

const Choice kChoices[] = {
    {"amx", has_amx, amx_kernels},
    {"avx512", has_avx512, avx512_kernels},
    {"avxvnni", has_avxvnni, avxvnni_kernels},
    {"avx2", has_avx2, avx2_kernels},
};

}  // namespace
}  // namespace gw

#pragma GCC visibility push(default)
extern "C" {

constexpr int kAbi = 4;

int gw_abi() { return kAbi; }

// The kernels called `name`, or the best ones if it is empty; null where this chip has none.
const gw::Kernels* gw_kernels(const char* name) {
  for (const auto& choice : gw::kChoices)
    if ((!*name || !std::strcmp(name, choice.name)) && choice.runs()) return &choice.kernels();
  return nullptr;
}

const char* gw_name(const gw::Kernels* kernels) { return kernels->name; }

void gw_linear(const gw::Kernels* kernels, const gw::Matrix* w, const gw::Input* in, int64_t m,
               float* y, int64_t y_stride, int add, int threads) {
  kernels->linear(*w, *in, m, y, y_stride, add, threads);
}

void gw_mlp(const gw::Kernels* kernels, const gw::Matrix* gate_up, const gw::Matrix* down,
            const gw::Input* in, int64_t m, float* y, int64_t y_stride, int threads) {
  kernels->mlp(*gate_up, *down, *in, m, y, y_stride, threads);
}

void gw_decode(const gw::Kernels* kernels, const gw::Decode* decode, int threads) {
  kernels->decode(*decode, threads);
}

void gw_step(const gw::Kernels* kernels, const gw::Step* step, int threads) {
  kernels->step(*step, threads);
}

void gw_top(const gw::Kernels* kernels, const gw::Top* top, int threads) {
  kernels->top(*top, threads);
}

void gw_rotate(const gw::Kernels* kernels, const gw::Rotate* rotate, int threads) {
  kernels->rotate(*rotate, threads);
}

}
#pragma GCC visibility pop
