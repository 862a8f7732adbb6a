// The C interface of the compiled kernels, and the table each instruction set fills in.
//
// Matrices lie in tiles of 16 output rows by 4 input columns, 64 bytes that one 512-bit or two
// 256-bit registers take as they are: `engine/quantization/packing.py` writes them.
#pragma once
#include <cstdint>

namespace gw {

constexpr int kGroup = 32;  // columns that share a scale, of weights (INT4) and of activations
constexpr int kTile = 16;   // output rows that lie interleaved

enum Format : int32_t { kInt8 = 0, kInt4 = 1, kInt4Zero = 2 };

// A quantized matrix [rows, cols]; mirrored by `engine/kernels/native.py`.
struct Matrix {
  const uint8_t* codes;   // kInt8: [tiles, cols/4, 64], code + 128; kInt4*: [tiles, cols/8, 64]
  const void* scales;     // kInt8: float [rows]; kInt4*: half [tiles, cols/32, 16]
  const uint8_t* zeros;   // kInt4Zero: [tiles, cols/32, 16]
  const float* bias;      // [rows] or null
  int64_t rows, cols;
  int32_t format;
};

// What is done to the rows of x on their way into a product.
struct Input {
  const float* x;      // [m, stride]
  int64_t stride;
  const float* norm;   // RMSNorm weight [cols], or null
  float eps;
  int32_t swiglu;      // x is [gate | up], each cols wide; the product sees silu(gate) * up
};

// Attention of one request's candidates over a shared prompt and their own tails.
struct Decode {
  const float* qkv;            // [n, (heads + 2 kv_heads) * size], not yet rotated
  float* out;                  // [n, heads * size]
  const float *cos, *sin;      // [positions, size / 2]
  const float *keys, *values;  // prompt: [kv_heads, prompt_stride, size]
  float *tail_keys, *tail_values;  // [n, kv_heads, tail_stride, size]
  int64_t n, heads, kv_heads, size;
  int64_t prompt_stride, prompt, tail_stride, tail;  // tokens; `tail` is where the new one goes
};

// One decoder block whose matrices are all quantized.
struct Block {
  const float *attention_norm, *mlp_norm;
  const Matrix *qkv, *out, *gate_up, *down;
};

// A request's part of a decode step, over all blocks. The caches of one block are found by its
// number: the prompt's in a table, the tails' at a stride.
struct Request {
  const float *const *keys, *const *values;  // [blocks] of [kv_heads, prompt_stride, size]
  float *tail_keys, *tail_values;            // [blocks, n, kv_heads, tail_stride, size]
  int64_t n, prompt_stride, prompt, tail_stride, tail;
};

// A decode step of some rows through blocks [first, last).
struct Step {
  const Block* blocks;
  int64_t first, last;
  const Request* requests;
  int64_t count;
  float* x;  // [rows, hidden], in and out
  int64_t rows, heads, kv_heads, size;
  const float *cos, *sin;
  float eps;
};

// Rotary embedding of a prefill's queries and keys; keys and values go into the cache.
struct Rotate {
  const float* qkv;        // [m, (heads + 2 kv_heads) * size]
  const float *cos, *sin;  // [positions, size / 2]
  float *keys, *values;    // [kv_heads, stride, size]
  void* q_out;             // [heads, m, size], float or bfloat16
  int64_t m, heads, kv_heads, size, stride, start;
  int32_t bf16;            // whether q_out is bfloat16
};

// The k best tokens of each row, and the logarithm of the sum of e^logit. Where there is a
// sketch, the logits are made first: table(projection(input)).
struct Top {
  float* logits;            // [rows, vocab]; of a sketch, the best become exact
  int64_t rows, vocab, k;
  const int64_t* banned;    // tokens never to be picked
  int64_t banned_count;
  const Matrix* projection;  // of the sketch, or null
  const Matrix* table;
  const Matrix* exact;      // the head in INT8 that the sketch is of
  Input input;              // what head and projection multiply
  int64_t* ids;             // [rows, k], best first
  float* values;            // [rows, k]
  float* log_total;         // [rows]
};

struct Kernels {
  const char* name;
  // y [m, y_stride] = product, or += product where `add`.
  void (*linear)(const Matrix&, const Input&, int64_t m, float* y, int64_t y_stride, bool add,
                 int threads);
  // y += down(silu(gate) * up) with [gate | up] = gate_up(x).
  void (*mlp)(const Matrix& gate_up, const Matrix& down, const Input&, int64_t m, float* y,
              int64_t y_stride, int threads);
  void (*decode)(const Decode&, int threads);
  void (*step)(const Step&, int threads);
  void (*top)(const Top&, int threads);
  void (*rotate)(const Rotate&, int threads);
};

const Kernels& avx2_kernels();
const Kernels& avxvnni_kernels();
const Kernels& avx512_kernels();
const Kernels& amx_kernels();

}  // namespace gw
