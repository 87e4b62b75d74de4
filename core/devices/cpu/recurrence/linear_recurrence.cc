// SPDX-License-Identifier: Apache-2.0
// The kernels of linear recurrences and their gradient: a thread computes whole heads of a batch
// row, chunk by chunk, with the formulas of the decomposition (core/ops/linear_recurrence.cc).

#include "core/devices/cpu/recurrence/linear_recurrence.h"

#include <cmath>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/devices/cpu/recurrence/linear_recurrence.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/devices/cpu/gemm/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

// Rows of a block of a triangular matrix, in products and in the solution of a system.
inline constexpr int64_t kTriangleRows = 2 * kTileRows, kSolvedRows = kTileRows;

// One head of one batch row. Matrices are in scratch memory, each row with whole vectors. T is the
// dtype of queries, keys and values.
template <typename T>
class HeadRecurrence {
 public:
  HeadRecurrence(const RecurrenceShape& shape, const RecurrenceArgs& args, int64_t item,
                 float* scratch)
      : shape_(shape),
        args_(args),
        item_(item),
        first_token_(item / shape.heads * shape.seq * shape.heads + item % shape.heads),
        stride_(shape.stride()),
        keys_(whole_vectors(shape.key_dim)),
        values_(whole_vectors(shape.value_dim)),
        next_(scratch) {
    for (float** const matrix :
         {&query_, &key_, &value_, &decay_, &scores_, &products_, &unscaled_, &added_, &result_})
      *matrix = take(kRecurrenceChunk);
    key_columns_ = take(shape.key_dim);
    if (shape.gradient) {
      for (float** const matrix :
           {&d_out_, &d_added_, &d_value_, &d_scores_, &d_products_, &d_query_, &d_key_})
        *matrix = take(kRecurrenceChunk);
      d_state_ = take(shape.key_dim);
      state_columns_ = take(shape.value_dim);
      added_columns_ = take(shape.value_dim);
    }
    states_ = next_;
  }

  void forward() {
    if (shape_.seq == 1 && args_.state != nullptr) return one_token();
    read_state(args_.state, states_);
    for (int64_t chunk = 0; chunk < shape_.chunks(); ++chunk) {
      read_chunk(chunk);
      compute_added(states_);
      compute_scores();
      multiply<false>(count_, values_, shape_.key_dim, rows(query_), states_, result_);
      scale(count_, values_, entering_, result_);
      add_lower(scores_, added_, values_, result_);
      write_rows(result_, shape_.value_dim, args_.out);
      advance(states_, states_);
    }
    write_state(states_, args_.last_state);
  }

  // Computes the states before all chunks first, then the cotangents from the last chunk to the
  // first.
  void backward() {
    const int64_t state_floats = shape_.key_dim * stride_;
    read_state(args_.state, states_);
    for (int64_t chunk = 0; chunk + 1 < shape_.chunks(); ++chunk) {
      float* const state = states_ + chunk * state_floats;
      read_chunk(chunk);
      compute_added(state);
      advance(state, state + state_floats);
    }
    read_state(args_.d_last_state, d_state_);
    ahead_ = -kRecurrenceChunk;
    for (int64_t chunk = shape_.chunks(); chunk-- > 0;) {
      const float* const state = states_ + chunk * state_floats;
      read_chunk(chunk);
      read_rows(args_.d_out, shape_.value_dim, d_out_);
      compute_added(state);
      compute_scores();
      differentiate(state);
    }
    if (args_.d_state != nullptr) write_state(d_state_, args_.d_state);
  }

 private:
  static int64_t whole_vectors(int64_t count) { return (count + lanes() - 1) / lanes() * lanes(); }
  float* take(int64_t rows) {
    float* const matrix = next_;
    next_ += rows * stride_;
    return matrix;
  }
  template <typename Float>
  Float* at(Float* matrix, int64_t row, int64_t column = 0) const {
    return matrix + row * stride_ + column;
  }

  // The left factor of a product: a matrix or its transpose.
  Factor rows(const float* matrix) const { return {matrix, stride_, 1}; }
  Factor columns(const float* matrix) const { return {matrix, 1, stride_}; }
  // Computes or adds left·right.
  template <bool kAdd>
  void multiply(int64_t rows, int64_t columns, int64_t depth, Factor left, const float* right,
                float* to) const {
    small_gemm<kAdd>(rows, columns, depth, left, {right, stride_}, to, stride_);
  }
  // Computes left·right for the blocks that have elements of the lower triangle.
  void multiply_lower(int64_t depth, const float* left, const float* right, float* to) const {
    for (int64_t i = 0; i < count_; i += kTriangleRows) {
      const int64_t end = std::min(count_, i + kTriangleRows);
      multiply<false>(end - i, whole_vectors(end), depth, rows(at(left, i)), right, at(to, i));
    }
  }
  // Add a lower triangular matrix, or its transpose, times `right`, without most of the zeros.
  void add_lower(const float* lower, const float* right, int64_t columns, float* to) const {
    for (int64_t i = 0; i < count_; i += kTriangleRows) {
      const int64_t end = std::min(count_, i + kTriangleRows);
      multiply<true>(end - i, columns, end, rows(at(lower, i)), right, at(to, i));
    }
  }
  void add_upper(const float* lower, const float* right, int64_t columns, float* to) const {
    for (int64_t i = 0; i < count_; i += kTriangleRows)
      multiply<true>(std::min(kTriangleRows, count_ - i), columns, count_ - i,
                     this->columns(at(lower, i, i)), at(right, i), at(to, i));
  }

  // Calls f(row, column) for each vector.
  template <typename F>
  static HWY_INLINE void for_each(int64_t rows, int64_t columns, const F& f) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; j += lanes()) f(i, j);
  }
  // Multiplies rows by these factors, from one matrix to another.
  void scale(int64_t rows, int64_t columns, const float* factors, const float* from,
             float* to) const {
    for_each(rows, columns, [&](int64_t i, int64_t j) HWY_ATTR {
      store(hn::Mul(splat(factors[i]), load(at(from, i, j))), at(to, i, j));
    });
  }
  void scale(int64_t rows, int64_t columns, const float* factors, float* matrix) const {
    scale(rows, columns, factors, matrix, matrix);
  }
  // Rows of `to` are filled up with zeros.
  void transpose(const float* from, int64_t rows, int64_t columns, float* to) const {
    HWY_ALIGN Vec square[kMostLanes];
    for (int64_t i = 0; i < rows; i += lanes()) {
      for (int64_t j = 0; j < columns; j += lanes()) {
        for (int64_t r = 0; r < lanes(); ++r)
          square[r] = i + r < rows ? load(at(from, i + r, j)) : splat(0.0f);
        transpose_square(square);
        for (int64_t r = 0; r < std::min(lanes(), columns - j); ++r)
          store(square[r], at(to, j + r, i));
      }
    }
  }
  static float dot(const float* a, const float* b, int64_t size) {
    return sum_of(sum_over(size, [&](int64_t j, int64_t left) HWY_ATTR {
      return hn::Mul(load(a + j, left), load(b + j, left));
    }));
  }

  // The number of a token of the chunk among those of all heads.
  int64_t token(int64_t i) const { return first_token_ + (first_ + i) * shape_.heads; }
  // Prefetches the chunk that is read next, whose rows are far from each other.
  void read_rows(const void* from, int64_t width, float* to) const {
    for_each(count_, width, [&](int64_t i, int64_t j) HWY_ATTR {
      const T* const row = static_cast<const T*>(from) + token(i) * width + j;
      hwy::Prefetch(row + ahead_ * shape_.heads * width);
      store(load(row, width - j), at(to, i, j));
    });
  }
  void write_rows(const float* from, int64_t width, void* to) const {
    for_each(count_, width, [&](int64_t i, int64_t j) HWY_ATTR {
      store(load(at(from, i, j)), static_cast<T*>(to) + token(i) * width + j, width - j);
    });
  }
  // Reads the state of this head; without a state operand it is all zeros.
  void read_state(const float* from, float* to) const {
    const int64_t width = shape_.value_dim;
    for_each(shape_.key_dim, width, [&](int64_t i, int64_t j) HWY_ATTR {
      const int64_t row = (item_ * shape_.key_dim + i) * width;
      store(from == nullptr ? splat(0.0f) : load(from + row + j, width - j), at(to, i, j));
    });
  }
  void write_state(const float* from, float* to) const {
    const int64_t width = shape_.value_dim;
    for_each(shape_.key_dim, width, [&](int64_t i, int64_t j) HWY_ATTR {
      store(load(at(from, i, j)), to + (item_ * shape_.key_dim + i) * width + j, width - j);
    });
  }

  void read_chunk(int64_t chunk) {
    first_ = chunk * kRecurrenceChunk;
    count_ = std::min(kRecurrenceChunk, shape_.seq - first_);
    steps_ = whole_vectors(count_);
    read_rows(args_.key, shape_.key_dim, key_);
    read_rows(args_.value, shape_.value_dim, value_);
    transpose(key_, count_, shape_.key_dim, key_columns_);
    compute_decay();
  }

  // Computes decay between steps, and from before the chunk; both are 0 between segments.
  void compute_decay() {
    // A sum is in two parts, so that differences of large sums are exact.
    HWY_ALIGN float sums[kRecurrenceChunk] = {}, rests[kRecurrenceChunk] = {};
    HWY_ALIGN int32_t segments[kRecurrenceChunk] = {};
    int32_t before = 0;
    if (args_.segments != nullptr) {
      const int32_t* const row = args_.segments + item_ / shape_.heads * shape_.seq;
      before = row[std::max<int64_t>(0, first_ - 1)];
      std::copy_n(row + first_, count_, segments);
    }
    double sum = 0.0;
    for (int64_t i = 0; i < count_; ++i) {
      beta_[i] = args_.beta[token(i)];
      sum += static_cast<double>(args_.log_decay[token(i)]);
      sums[i] = static_cast<float>(sum);
      rests[i] = static_cast<float>(sum - static_cast<double>(sums[i]));
    }
    const auto same = [&](int32_t segment, int64_t j, Vec value) HWY_ATTR {
      const auto equal = hn::Eq(hn::Set(Ints(), segment), hn::Load(Ints(), segments + j));
      return hn::IfThenElseZero(hn::RebindMask(kFloats, equal), value);
    };
    for (int64_t j = 0; j < steps_; j += lanes())
      store(same(before, j, falling_exp(load(sums + j))), entering_ + j);
    for_each(count_, steps_, [&](int64_t i, int64_t j) HWY_ATTR {
      const Vec difference = hn::Add(hn::Sub(splat(sums[i]), load(sums + j)),
                                     hn::Sub(splat(rests[i]), load(rests + j)));
      const Vec decay = falling_exp(difference);
      store(before_row(i + 1, j, same(segments[i], j, decay)), at(decay_, i, j));
    });
    to_end_ = at(decay_, count_ - 1);
    whole_ = entering_[count_ - 1];
  }
  // The columns from j on that are before `row`; 0 for the others.
  static HWY_INLINE Vec before_row(int64_t row, int64_t j, Vec value) {
    const auto column = hn::Iota(Ints(), static_cast<int32_t>(j));
    const auto earlier = hn::Lt(column, hn::Set(Ints(), static_cast<int32_t>(row)));
    return hn::IfThenElseZero(hn::RebindMask(kFloats, earlier), value);
  }

  // Computes the values that are added to the state, and those before they are scaled by beta.
  void compute_added(const float* state) {
    if (!shape_.delta) {
      std::swap(value_, unscaled_);
      return scale(count_, values_, beta_, unscaled_, added_);
    }
    multiply_lower(shape_.key_dim, key_, key_columns_, products_);
    for_each(count_, steps_, [&](int64_t i, int64_t j) HWY_ATTR {
      const Vec decayed = hn::Mul(load(at(products_, i, j)), load(at(decay_, i, j)));
      store(before_row(i, j, hn::Neg(decayed)), at(products_, i, j));
    });
    multiply<false>(count_, values_, shape_.key_dim, rows(key_), state, result_);
    for_each(count_, values_, [&](int64_t i, int64_t j) HWY_ATTR {
      const Vec known = hn::Mul(splat(entering_[i]), load(at(result_, i, j)));
      store(hn::Sub(load(at(value_, i, j)), known), at(unscaled_, i, j));
    });
    for (int64_t first = 0; first < count_; first += kSolvedRows) {
      const int64_t end = std::min(count_, first + kSolvedRows);
      multiply<true>(end - first, values_, first, rows(at(products_, first)), added_,
                     at(unscaled_, first));
      for (int64_t i = first; i < end; ++i) {
        multiply<true>(1, values_, i - first, rows(at(products_, i, first)), at(added_, first),
                       at(unscaled_, i));
        scale(1, values_, beta_ + i, at(unscaled_, i), at(added_, i));
      }
    }
  }

  void compute_scores() {
    read_rows(args_.query, shape_.key_dim, query_);
    multiply_lower(shape_.key_dim, query_, key_columns_, scores_);
    for_each(count_, steps_, [&](int64_t i, int64_t j) HWY_ATTR {
      const Vec decayed = hn::Mul(load(at(scores_, i, j)), load(at(decay_, i, j)));
      store(before_row(i + 1, j, decayed), at(scores_, i, j));
    });
  }

  // Computes the state after the chunk, which may be in place. Scales what is added.
  void advance(const float* state, float* next) {
    decay_state(state, next);
    scale(count_, values_, to_end_, added_);
    multiply<true>(shape_.key_dim, values_, count_, columns(key_), added_, next);
  }
  void decay_state(const float* from, float* to) const {
    for_each(shape_.key_dim, values_, [&](int64_t i, int64_t j) HWY_ATTR {
      store(hn::Mul(splat(whole_), load(at(from, i, j))), at(to, i, j));
    });
  }

  // Computes and writes the cotangents of the chunk's tokens; that of the state after the chunk
  // becomes that of the state before it.
  void differentiate(const float* state) {
    std::fill_n(d_sums_, kRecurrenceChunk, 0.0f);
    d_end_ = 0.0f;
    for (int64_t i = 0; i < shape_.key_dim; ++i)
      d_end_ += whole_ * dot(at(state, i), at(d_state_, i), shape_.value_dim);
    compute_d_added();
    transpose(added_, count_, shape_.value_dim, added_columns_);
    multiply_lower(shape_.value_dim, d_out_, added_columns_, d_scores_);
    if (shape_.delta) multiply_lower(shape_.value_dim, d_value_, added_columns_, d_products_);
    differentiate_pairs();
    differentiate_state(state);
    add_lower(d_scores_, key_, keys_, d_query_);
    add_upper(d_scores_, query_, keys_, d_key_);
    if (shape_.delta) {
      add_lower(d_products_, key_, keys_, d_key_);
      add_upper(d_products_, key_, keys_, d_key_);
    }
    write_rows(d_query_, shape_.key_dim, args_.d_query);
    write_rows(d_key_, shape_.key_dim, args_.d_key);
    write_rows(d_value_, shape_.value_dim, args_.d_value);
    float sum = d_end_;
    for (int64_t i = count_; i-- > 0;) {
      args_.d_log_decay[token(i)] = sum += d_sums_[i];
      args_.d_beta[token(i)] = dot(at(d_added_, i), at(unscaled_, i), shape_.value_dim);
    }
  }

  // Computes the cotangents of what is added to the state, and beta times them, which are those of
  // the values.
  void compute_d_added() {
    multiply<false>(count_, values_, shape_.key_dim, rows(key_), d_state_, d_added_);
    scale(count_, values_, to_end_, d_added_);
    for (int64_t i = 0; i + 1 < count_; ++i) {
      const float kept = dot(at(added_, i), at(d_added_, i), shape_.value_dim);
      d_sums_[i] -= kept;
      d_end_ += kept;
    }
    add_upper(scores_, d_out_, values_, d_added_);
    if (!shape_.delta) return scale(count_, values_, beta_, d_added_, d_value_);
    for (int64_t end = count_; end > 0;) {
      const int64_t first = std::max<int64_t>(0, end - kSolvedRows);
      multiply<true>(end - first, values_, count_ - end, columns(at(products_, end, first)),
                     at(d_value_, end), at(d_added_, first));
      for (int64_t i = end; i-- > first;) {
        multiply<true>(1, values_, end - 1 - i, columns(at(products_, i + 1, i)),
                       at(d_value_, i + 1), at(d_added_, i));
        scale(1, values_, beta_ + i, at(d_added_, i), at(d_value_, i));
      }
      end = first;
    }
  }

  // Scales the cotangents of scores and products by decay; adds those of the decay's exponents.
  void differentiate_pairs() {
    for (int64_t i = 0; i < count_; ++i) {
      Vec row = splat(0.0f);
      for (int64_t j = 0; j < steps_; j += lanes()) {
        const Vec decay = load(at(decay_, i, j));
        const Vec d_score = before_row(i + 1, j, load(at(d_scores_, i, j)));
        Vec pair = before_row(i, j, hn::Mul(d_score, load(at(scores_, i, j))));
        store(hn::Mul(d_score, decay), at(d_scores_, i, j));
        if (shape_.delta) {
          const Vec d_product = before_row(i, j, load(at(d_products_, i, j)));
          pair = hn::MulAdd(d_product, load(at(products_, i, j)), pair);
          store(hn::Neg(hn::Mul(d_product, decay)), at(d_products_, i, j));
        }
        row = hn::Add(row, pair);
        store(hn::Sub(load(d_sums_ + j), pair), d_sums_ + j);
      }
      d_sums_[i] += sum_of(row);
    }
  }

  // Computes what the states before and after the chunk give to the cotangents of queries and keys,
  // and the cotangent of the state before it. Scales what is added and the cotangent of the result.
  void differentiate_state(const float* state) {
    scale(count_, values_, to_end_, added_);
    transpose(d_state_, shape_.key_dim, shape_.value_dim, state_columns_);
    multiply<false>(count_, keys_, shape_.value_dim, rows(added_), state_columns_, d_key_);

    scale(count_, values_, entering_, d_out_);
    transpose(state, shape_.key_dim, shape_.value_dim, state_columns_);
    multiply<false>(count_, keys_, shape_.value_dim, rows(d_out_), state_columns_, d_query_);
    for (int64_t i = 0; i < count_; ++i)
      d_sums_[i] += dot(at(query_, i), at(d_query_, i), shape_.key_dim);
    decay_state(d_state_, d_state_);
    multiply<true>(shape_.key_dim, values_, count_, columns(query_), d_out_, d_state_);
    if (!shape_.delta) return;

    // The cotangent of what keys read from the state, which `result_` holds.
    float* const d_read = value_;
    for_each(count_, values_, [&](int64_t i, int64_t j) HWY_ATTR {
      store(hn::Mul(splat(-entering_[i]), load(at(d_value_, i, j))), at(d_read, i, j));
    });
    for (int64_t i = 0; i < count_; ++i)
      d_sums_[i] += dot(at(result_, i), at(d_read, i), shape_.value_dim);
    multiply<true>(count_, keys_, shape_.value_dim, rows(d_read), state_columns_, d_key_);
    multiply<true>(shape_.key_dim, values_, count_, columns(key_), d_read, d_state_);
  }

  // Decoding: the state is read and written once.
  void one_token() {
    const int64_t key_dim = shape_.key_dim, value_dim = shape_.value_dim;
    count_ = 1;
    read_rows(args_.query, key_dim, query_);
    read_rows(args_.key, key_dim, key_);
    read_rows(args_.value, value_dim, value_);
    Rows state{args_.state + item_ * key_dim * value_dim, value_dim};
    if (value_dim != values_) {
      read_state(args_.state, states_);
      state = {states_, stride_};
    }
    // What the key and the query read, as two rows.
    small_gemm<false>(2, values_, key_dim, {key_, query_ - key_, 1}, state, result_, stride_);
    const float decay = std::exp(args_.log_decay[token(0)]), beta = args_.beta[token(0)];
    const float score = dot(query_, key_, key_dim);
    for (int64_t j = 0; j < values_; j += lanes()) {
      const Vec known = hn::Mul(splat(shape_.delta ? decay : 0.0f), load(result_ + j));
      const Vec added = hn::Mul(splat(beta), hn::Sub(load(value_ + j), known));
      store(added, added_ + j);
      const Vec read = hn::Mul(splat(decay), load(at(result_, 1, j)));
      store(hn::MulAdd(splat(score), added, read), at(result_, 1, j));
    }
    write_rows(at(result_, 1), value_dim, args_.out);
    float* const to = args_.last_state + item_ * key_dim * value_dim;
    for_each(key_dim, value_dim, [&](int64_t i, int64_t j) HWY_ATTR {
      const Vec kept = hn::Mul(splat(decay), load(state.data + i * state.stride + j));
      store(hn::MulAdd(splat(key_[i]), load(added_ + j), kept), to + i * value_dim + j,
            value_dim - j);
    });
  }

  const RecurrenceShape& shape_;
  const RecurrenceArgs& args_;
  int64_t item_, first_token_, stride_;
  int64_t keys_, values_;  // key_dim and value_dim in whole vectors.
  float* next_;            // Scratch memory that is not taken yet.

  // A chunk: its first token, its number of tokens, and that in whole vectors.
  int64_t first_ = 0, count_ = 0, steps_ = 0;
  int64_t ahead_ = kRecurrenceChunk;  // From a token to that of the chunk that is read next.
  float *query_, *key_, *value_, *key_columns_, *decay_;
  float* scores_;                  // Decayed products of queries and keys.
  float* products_;                // The negative of decayed products of keys and earlier keys.
  float *added_, *unscaled_;       // What is added to the state, and that without beta.
  float* result_;                  // First what keys read from the state.
  const float* to_end_ = nullptr;  // Decay from each step to the end of the chunk.
  float whole_ = 0.0f;             // Decay of the state over the chunk.
  HWY_ALIGN float beta_[kRecurrenceChunk] = {}, entering_[kRecurrenceChunk] = {};

  // Cotangents; "columns" are transposed matrices.
  float *d_out_ = nullptr, *d_added_ = nullptr, *d_value_ = nullptr, *d_scores_ = nullptr,
        *d_products_ = nullptr, *d_query_ = nullptr, *d_key_ = nullptr, *d_state_ = nullptr,
        *state_columns_ = nullptr, *added_columns_ = nullptr;
  // Cotangents of the sums of log_decay from the start of the chunk, and more for the last sum.
  HWY_ALIGN float d_sums_[kRecurrenceChunk] = {};
  float d_end_ = 0.0f;
  float* states_;  // The state, or those before all chunks.
};

template <typename T>
void run_head(const RecurrenceShape& shape, const RecurrenceArgs& args, int64_t item,
              float* scratch) {
  HeadRecurrence<T> head(shape, args, item, scratch);
  shape.gradient ? head.backward() : head.forward();
}

void RunHead(const RecurrenceShape& shape, const RecurrenceArgs& args, int64_t item,
             float* scratch) {
  shape.dtype == DType::kBF16 ? run_head<BFloat16>(shape, args, item, scratch)
                              : run_head<float>(shape, args, item, scratch);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(RunHead);

class RecurrenceKernel final : public HostKernel {
 public:
  RecurrenceKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : at_(node.attributes), pool_(pool) {
    const Type& q = graph.type(node.inputs[RecurrenceOperands::kQuery]);
    shape_ = {.dtype = vector_dtype(graph, node, 0),
              .delta = at_.delta,
              .gradient = node.op == &kLinearRecurrenceGradOp,
              .batch = q.axes[0].size,
              .seq = q.axes[1].size,
              .heads = q.axes[2].size,
              .key_dim = q.axes[3].size,
              .value_dim = graph.type(node.inputs[RecurrenceOperands::kValue]).axes[3].size};
  }

  int64_t scratch_bytes() const override {
    return float_bytes(pool_.size() * shape_.scratch_floats());
  }

  void run(const HostArgs& args) override {
    const RecurrenceArgs of_node = arguments(args);
    pool_.parallel(shape_.batch * shape_.heads, 1, [&](Range range, int thread) {
      for (int64_t item = range.begin; item < range.end; ++item) HWY_DYNAMIC_DISPATCH(RunHead)
      (shape_, of_node, item, scratch_floats(args) + thread * shape_.scratch_floats());
    });
  }

 private:
  RecurrenceArgs arguments(const HostArgs& args) const {
    using At = RecurrenceOperands;
    RecurrenceArgs all{
        .query = args.inputs[At::kQuery],
        .key = args.inputs[At::kKey],
        .value = args.inputs[At::kValue],
        .log_decay = input_as<float>(args, At::kLogDecay),
        .beta = input_as<float>(args, At::kBeta),
        .state = at_.has_state ? input_as<float>(args, at_.state) : nullptr,
        .segments = at_.has_segments ? input_as<int32_t>(args, at_.segments) : nullptr};
    if (!shape_.gradient) {
      all.out = args.outputs[0];
      all.last_state = output_as<float>(args, 1);
      return all;
    }
    all.d_out = args.inputs[at_.out_cotangent];
    if (at_.has_final) all.d_last_state = input_as<float>(args, at_.final_cotangent);
    all.d_query = args.outputs[At::kQuery];
    all.d_key = args.outputs[At::kKey];
    all.d_value = args.outputs[At::kValue];
    all.d_log_decay = output_as<float>(args, At::kLogDecay);
    all.d_beta = output_as<float>(args, At::kBeta);
    if (at_.has_state) all.d_state = output_as<float>(args, At::kBeta + 1);
    return all;
  }

  RecurrenceOperands at_;
  RecurrenceShape shape_;
  ThreadPool& pool_;
};

const KernelRegistrar kRegisterRecurrence{{&kLinearRecurrenceOp, &kLinearRecurrenceGradOp},
                                          make_kernel<RecurrenceKernel>};

}  // namespace
}  // namespace tessera
#endif  // HWY_ONCE
