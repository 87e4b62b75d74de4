// SPDX-License-Identifier: Apache-2.0
// linear_recurrence and its gradient, token by token in f32. Threads keep a line of the state, a
// column or a row, in registers. Columns do not depend on each other, neither those of the state
// nor, from the last token to the first, those of its cotangent. Once it is known what each token
// adds, rows do not either, so that the cotangents of q and k need no sums over blocks:
//
//   recurrence          columns, forward    w = v - S^T k; then beta·w is added along k
//   recurrence_values   columns, backward   x = dT^T k, the cotangent of beta·w; dv = beta·x
//   recurrence_queries  rows, forward       dq = T do, and the part -beta·S x of dk
//   recurrence_keys     rows, backward      the part beta·dT w of dk
//   recurrence_gates    sums of the terms of dbeta and dlog_decay
//
// S is the state after the decay, T the one after the addition, dS and dT are their cotangents.
// dlog_decay is the sum of dS·S over all elements. By the products above it is that of the next
// token, plus q·dq, plus k times the first part of dk, minus k times the second.
//
// In bf16 the op moves 8 bytes for each element of v if key_dim is value_dim, its gradient 64.
#include "plugins/cuda/kernels/linear_recurrence.h"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {
namespace {

constexpr int kHeld = kRecurrenceHeld;
constexpr int kPart = kHeld + 4;  // A thread's part in shared memory; adjacent ones differ in bank.
constexpr int kWarps = kRecurrenceThreads / 32;

struct InnerTile {  // Elements along lines, of some tokens.
  alignas(16) float x[kRecurrenceParts * kPart];
};
struct OuterTile {  // One element for each line, of some tokens.
  float x[kRecurrenceTokens * kRecurrenceLines];
};
struct Gates {
  float beta[kRecurrenceTokens], decay[kRecurrenceTokens];
  float sums[kRecurrenceTokens * kWarps];
};

// Whether a segment begins with this token, to which then nothing passes from the one before.
__device__ bool begins(const RecurrenceParameters& p, int64_t batch, int token) {
  if (p.segments == nullptr || token == 0) return false;
  const int32_t* const id = p.segments + batch * p.seq + token;
  return id[0] != id[-1];
}

// Sums over the threads of a warp whose numbers differ in bits from `low` to below `high`.
__device__ float sum_of_bits(float x, int low, int high) {
  for (int bit = low; bit < high; bit *= 2) x += __shfl_xor_sync(0xffffffffu, x, bit);
  return x;
}

// The lines of a block, and the tokens whose elements it has in shared memory.
class Block {
 public:
  __device__ Block(const RecurrenceParameters& parameters, Gates& shared)
      : p(parameters),
        gates(shared),
        head(blockIdx.x / p.of.groups),
        lane(thread % p.of.lanes),
        line(thread / p.of.lanes),
        first_line(static_cast<int>(blockIdx.x % p.of.groups) * p.of.lines),
        width(min(p.of.lines, p.of.outer - first_line)) {}

  __device__ void move_to(int token) {
    first = token;
    count = min(p.of.tokens, p.seq - token);
    const int64_t batch = head / p.heads;
    row = (batch * p.seq + token) * p.heads + (head - batch * p.heads);
    for (int t = thread; t < count; t += threads) {
      gates.beta[t] = p.beta[row + t * p.heads];
      gates.decay[t] = begins(p, batch, token + t) ? 0.0f : expf(p.log_decay[row + t * p.heads]);
    }
  }

  template <typename T>
  __device__ void load(const void* from, InnerTile& to) const {
    const T* const x = static_cast<const T*>(from) + row * p.of.inner;
    load_rows(x, p.of.inner, p.of.inner, p.of.lanes * kHeld, to.x, p.of.lanes * kPart);
  }
  template <typename T>
  __device__ void load(const void* from, OuterTile& to) const {
    const T* const x = static_cast<const T*>(from) + row * p.of.outer + first_line;
    load_rows(x, p.of.outer, width, p.of.lines, to.x, p.of.lines);
  }
  template <typename T>
  __device__ void store(const OuterTile& from, void* to) const {
    T* const y = static_cast<T*>(to) + row * p.of.outer + first_line;
    if (p.aligned) {
      store_packs<T, kVector<T>>(from, y);
    } else {
      store_packs<T, 1>(from, y);
    }
  }

  // The part of this thread, and the element of its line.
  __device__ const float* at(const InnerTile& tile, int t) const {
    return tile.x + (t * p.of.lanes + lane) * kPart;
  }
  __device__ float at(const OuterTile& tile, int t) const { return tile.x[t * p.of.lines + line]; }
  __device__ void set(OuterTile& tile, int t, float x) const {
    if (lane == 0) tile.x[t * p.of.lines + line] = x;
  }

  // Sums over all lines in two steps, with a barrier between them.
  __device__ void sum_lines(int t, float x) const {
    x = sum_of_bits(x, p.of.lanes, 32);
    if (thread % 32 == 0) gates.sums[t * kWarps + thread / 32] = x;
  }
  __device__ float summed(int t) const {
    float sum = 0.0f;
    for (int warp = 0; warp < threads / 32; ++warp) sum += gates.sums[t * kWarps + warp];
    return sum;
  }
  __device__ void store_sums(float* parts, bool adds) const {
    parts += int64_t{blockIdx.x} * p.seq + first;
    for (int t = thread; t < count; t += threads)
      parts[t] = adds ? parts[t] + summed(t) : summed(t);
  }

  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const RecurrenceParameters& p;
  Gates& gates;
  const int64_t head;  // Counted over the batch.
  const int lane, line, first_line, width;
  int first = 0, count = 0;
  int64_t row = 0;  // The first token's.

 private:
  // Reads rows of `elements` as rows of `padded`, with zeros behind.
  template <typename T>
  __device__ void load_rows(const T* x, int stride, int elements, int padded, float* to,
                            int pitch) const {
    if (p.aligned) {
      load_packs<T, kVector<T>>(x, stride, elements, padded, to, pitch);
    } else {
      load_packs<T, 1>(x, stride, elements, padded, to, pitch);
    }
  }
  template <typename T, int kPack>
  __device__ void load_packs(const T* x, int stride, int elements, int padded, float* to,
                             int pitch) const {
    for_packs<kPack>(padded, [&](int t, int column) {
      float value[kPack] = {};
      if (column < elements) load_vector(x + t * p.heads * stride + column, value);
      float* const at = to + t * pitch + column / kHeld * kPart + column % kHeld;
#pragma unroll
      for (int e = 0; e < kPack; ++e) at[e] = value[e];
    });
  }
  template <typename T, int kPack>
  __device__ void store_packs(const OuterTile& from, T* y) const {
    for_packs<kPack>(width, [&](int t, int column) {
      float value[kPack];
#pragma unroll
      for (int e = 0; e < kPack; ++e) value[e] = from.x[t * p.of.lines + column + e];
      store_vector(y + t * p.heads * p.of.outer + column, value);
    });
  }
  template <int kPack, typename F>
  __device__ void for_packs(int elements, F f) const {
    const int packs = elements / kPack;
    for (int i = thread; i < count * packs; i += threads) f(i / packs, i % packs * kPack);
  }
};

// A thread's part of a line of the state or its cotangent.
class Line {
 public:
  // Null: zeros.
  __device__ Line(const Block& block, const float* state) {
    for_elements(block, [&](int i, int64_t at) { x_[i] = state == nullptr ? 0.0f : state[at]; });
  }
  __device__ void store(const Block& block, float* state) const {
    for_elements(block, [&](int i, int64_t at) { state[at] = x_[i]; });
  }

  __device__ void scale(float factor) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) x_[i] *= factor;
  }
  __device__ void add(const float* y, float factor) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) x_[i] = fmaf(y[i], factor, x_[i]);
  }
  // The product of the whole line, for all of its threads.
  __device__ float dot(const Block& block, const float* y) const {
    float sum[4] = {};
#pragma unroll
    for (int i = 0; i < kHeld; ++i) sum[i % 4] = fmaf(x_[i], y[i], sum[i % 4]);
    return sum_of_bits((sum[0] + sum[1]) + (sum[2] + sum[3]), 1, block.p.of.lanes);
  }
  __device__ float dot_state(const Block& block, const float* state) const {
    float sum = 0.0f;
    for_elements(block, [&](int i, int64_t at) { sum = fmaf(x_[i], state[at], sum); });
    return sum_of_bits(sum, 1, block.p.of.lanes);
  }

 private:
  template <typename F>
  __device__ void for_elements(const Block& block, F f) const {
    const RecurrenceParameters& p = block.p;
    const int outer = block.first_line + block.line, inner = block.lane * kHeld;
    const int64_t step = p.of.columns ? p.value_dim : 1;
    int64_t at = block.head * p.key_dim * p.value_dim + inner * step +
                 outer * int64_t{p.of.columns ? 1 : p.value_dim};
    const int count = outer < p.of.outer ? p.of.inner - inner : 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i, at += step)
      if (i < count) f(i, at);
  }

  float x_[kHeld] = {};
};

template <typename T>
__device__ void recurrence(const RecurrenceParameters& p) {
  __shared__ InnerTile query, key;
  __shared__ OuterTile value, result;
  __shared__ Gates gates;
  Block block(p, gates);
  Line state(block, p.state);
  const bool has_out = p.out != nullptr;
  for (int first = 0; first < p.seq; first += p.of.tokens) {
    block.move_to(first);
    if (has_out) block.load<T>(p.query, query);
    block.load<T>(p.key, key);
    block.load<T>(p.value, value);
    __syncthreads();
    for (int t = 0; t < block.count; ++t) {
      state.scale(gates.decay[t]);
      float difference = block.at(value, t);
      if (p.delta) difference -= state.dot(block, block.at(key, t));
      state.add(block.at(key, t), gates.beta[t] * difference);
      block.set(result, t, has_out ? state.dot(block, block.at(query, t)) : difference);
    }
    __syncthreads();
    if (has_out) {
      block.store<T>(result, p.out);
    } else {
      block.store<float>(result, p.difference);
    }
  }
  if (p.last_state != nullptr) state.store(block, p.last_state);
  if (p.final_cotangent == nullptr) return;
  block.sum_lines(0, state.dot_state(block, p.final_cotangent));
  __syncthreads();
  if (threadIdx.x == 0) p.last_parts[blockIdx.x] = block.summed(0);
}

template <typename T>
__device__ void recurrence_values(const RecurrenceParameters& p) {
  __shared__ InnerTile query, key;
  __shared__ OuterTile cotangent, difference, dadded, dvalue;
  __shared__ Gates gates;
  Block block(p, gates);
  Line dstate(block, p.final_cotangent);
  for (int first = (p.seq - 1) / p.of.tokens * p.of.tokens; first >= 0; first -= p.of.tokens) {
    block.move_to(first);
    block.load<T>(p.query, query);
    block.load<T>(p.key, key);
    block.load<T>(p.cotangent, cotangent);
    block.load<float>(p.difference, difference);
    __syncthreads();
    for (int t = block.count - 1; t >= 0; --t) {
      dstate.add(block.at(query, t), block.at(cotangent, t));
      const float x = dstate.dot(block, block.at(key, t));
      if (p.delta) dstate.add(block.at(key, t), -gates.beta[t] * x);
      dstate.scale(gates.decay[t]);
      block.set(dadded, t, x);
      block.set(dvalue, t, gates.beta[t] * x);
      block.sum_lines(t, x * block.at(difference, t));
    }
    __syncthreads();
    block.store<float>(dadded, p.dadded);
    block.store<T>(dvalue, p.dvalue);
    block.store_sums(p.beta_parts, false);
  }
  if (p.dstate != nullptr) dstate.store(block, p.dstate);
}

template <typename T>
__device__ void recurrence_queries(const RecurrenceParameters& p) {
  __shared__ InnerTile cotangent, difference, dadded;
  __shared__ OuterTile query, key, dquery, delta_dkey;
  __shared__ Gates gates;
  Block block(p, gates);
  Line state(block, p.state);
  for (int first = 0; first < p.seq; first += p.of.tokens) {
    block.move_to(first);
    block.load<T>(p.cotangent, cotangent);
    block.load<float>(p.difference, difference);
    if (p.delta) block.load<float>(p.dadded, dadded);
    block.load<T>(p.query, query);
    block.load<T>(p.key, key);
    __syncthreads();
    for (int t = 0; t < block.count; ++t) {
      const float k = block.at(key, t), beta = gates.beta[t];
      state.scale(gates.decay[t]);
      const float dk = p.delta ? -beta * state.dot(block, block.at(dadded, t)) : 0.0f;
      state.add(block.at(difference, t), beta * k);
      const float dq = state.dot(block, block.at(cotangent, t));
      block.set(dquery, t, dq);
      block.set(delta_dkey, t, dk);
      block.sum_lines(t, block.at(query, t) * dq + k * dk);
    }
    __syncthreads();
    block.store<T>(dquery, p.dquery);
    if (p.delta) block.store<float>(delta_dkey, p.delta_dkey);
    block.store_sums(p.decay_parts, false);
  }
}

template <typename T>
__device__ void recurrence_keys(const RecurrenceParameters& p) {
  __shared__ InnerTile cotangent, difference, dadded;
  __shared__ OuterTile query, key, dkey, delta_dkey;
  __shared__ Gates gates;
  Block block(p, gates);
  Line dstate(block, p.final_cotangent);
  for (int first = (p.seq - 1) / p.of.tokens * p.of.tokens; first >= 0; first -= p.of.tokens) {
    block.move_to(first);
    block.load<T>(p.cotangent, cotangent);
    block.load<float>(p.difference, difference);
    if (p.delta) {
      block.load<float>(p.dadded, dadded);
      block.load<float>(p.delta_dkey, delta_dkey);
    }
    block.load<T>(p.query, query);
    block.load<T>(p.key, key);
    __syncthreads();
    for (int t = block.count - 1; t >= 0; --t) {
      const float k = block.at(key, t), beta = gates.beta[t];
      dstate.add(block.at(cotangent, t), block.at(query, t));
      const float dk = beta * dstate.dot(block, block.at(difference, t));
      if (p.delta) dstate.add(block.at(dadded, t), -beta * k);
      dstate.scale(gates.decay[t]);
      block.set(dkey, t, p.delta ? dk + block.at(delta_dkey, t) : dk);
      block.sum_lines(t, -k * dk);
    }
    __syncthreads();
    block.store<T>(dkey, p.dkey);
    block.store_sums(p.decay_parts, true);
  }
}

// The sum of a token over the groups of a head.
__device__ float sum_of_groups(const float* parts, int64_t head, int groups, int seq, int token) {
  float sum = 0.0f;
  for (int group = 0; group < groups; ++group) sum += parts[(head * groups + group) * seq + token];
  return sum;
}

// A warp has a head of a batch row, and sums the terms of dlog_decay to the end of each segment.
__device__ void recurrence_gates(const RecurrenceParameters& p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t head = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32, batch = head / p.heads;
  if (batch >= p.batch) return;
  float later =
      p.final_cotangent == nullptr ? 0.0f : sum_of_groups(p.last_parts, head, p.beta_groups, 1, 0);
  for (int first = (p.seq - 1) / 32 * 32; first >= 0; first -= 32) {
    const int token = first + 31 - lane;
    const bool exists = token < p.seq;
    float sum = exists ? sum_of_groups(p.decay_parts, head, p.decay_groups, p.seq, token) : 0.0f;
    int stops = token + 1 < p.seq && begins(p, batch, token + 1);
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const float next = __shfl_up_sync(0xffffffffu, sum, distance);
      const int next_stops = __shfl_up_sync(0xffffffffu, stops, distance);
      if (stops == 0 && lane >= distance) sum += next, stops = next_stops;
    }
    if (stops == 0) sum += later;
    later = __shfl_sync(0xffffffffu, sum, 31);
    if (!exists) continue;
    const int64_t row = (batch * p.seq + token) * p.heads + (head - batch * p.heads);
    const bool from_zeros = begins(p, batch, token) || (token == 0 && p.state == nullptr);
    p.dlog_decay[row] = from_zeros ? 0.0f : sum;
    p.dbeta[row] = sum_of_groups(p.beta_parts, head, p.beta_groups, p.seq, token);
  }
}

}  // namespace

#define TESSERA_RECURRENCE(name, body)                                \
  extern "C" __global__ void __launch_bounds__(kRecurrenceThreads, 4) \
      name(const __grid_constant__ RecurrenceParameters p) {          \
    body(p);                                                          \
  }
TESSERA_RECURRENCE(linear_recurrence_f32, recurrence<float>)
TESSERA_RECURRENCE(linear_recurrence_bf16, recurrence<bf16>)
TESSERA_RECURRENCE(linear_recurrence_values_f32, recurrence_values<float>)
TESSERA_RECURRENCE(linear_recurrence_values_bf16, recurrence_values<bf16>)
TESSERA_RECURRENCE(linear_recurrence_queries_f32, recurrence_queries<float>)
TESSERA_RECURRENCE(linear_recurrence_queries_bf16, recurrence_queries<bf16>)
TESSERA_RECURRENCE(linear_recurrence_keys_f32, recurrence_keys<float>)
TESSERA_RECURRENCE(linear_recurrence_keys_bf16, recurrence_keys<bf16>)
TESSERA_RECURRENCE(linear_recurrence_gates, recurrence_gates)
#undef TESSERA_RECURRENCE

}  // namespace tessera::cuda
