// SPDX-License-Identifier: Apache-2.0
// The kernels of random_uniform, dropout and stochastic_round (core/devices/cpu/philox-inl.h).
#include "core/base/random.h"

#include <algorithm>
#include <string>

#include "core/devices/cpu/registry.h"
#include "core/devices/cpu/rounded_elements.h"
#include "core/devices/cpu/shard_index_map.h"
#include "core/ops/random.h"
#include "core/ops/rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/devices/cpu/random.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "core/devices/cpu/philox-inl.h"
#include "core/devices/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

// Computes the formula of core/base/random.h.
HWY_INLINE Vec uniform_at(const uint32_t* words) {
  const auto bits = hn::ShiftRight<8>(hn::LoadU(Words(), words));
  return hn::Mul(hn::ConvertTo(kFloats, hn::BitCast(Ints(), bits)), splat(1.0f / 16777216.0f));
}

void UniformElements(const RandomStream& stream, int64_t begin, int64_t end, float* out) {
  HWY_ALIGN uint32_t words[kWordsOfChunk];
  for (int64_t run = begin; run < end; run += kChunk) {
    const int64_t count = std::min(kChunk, end - run);
    draw_words(stream, run, count, words);
    const uint32_t* first = words + run % 4;
    for (int64_t i = 0; i < count; i += lanes())
      store(uniform_at(first + i), out + (run - begin) + i, count - i);
  }
}

template <typename T>
void dropout(const RandomStream& stream, int64_t offset, float keep, const void* operand,
             void* result, int64_t begin, int64_t end) {
  const T* const x = static_cast<const T*>(operand);
  T* const y = static_cast<T*>(result);
  HWY_ALIGN uint32_t words[kWordsOfChunk];
  const Vec limit = splat(keep), factor = splat(1.0f / keep);
  for (int64_t run = begin; run < end; run += kChunk) {
    const int64_t count = std::min(kChunk, end - run);
    draw_words(stream, offset + run, count, words);
    const uint32_t* first = words + (offset + run) % 4;
    for (int64_t i = 0; i < count; i += lanes()) {
      const Vec value = hn::Mul(load(x + run + i, count - i), factor);
      const auto kept = hn::Lt(uniform_at(first + i), limit);
      store(hn::IfThenElseZero(kept, value), y + run + i, count - i);
    }
  }
}

void DropoutElements(const RandomStream& stream, int64_t offset, float keep, DType dtype,
                     const void* x, void* y, int64_t begin, int64_t end) {
  dtype == DType::kBF16 ? dropout<BFloat16>(stream, offset, keep, x, y, begin, end)
                        : dropout<float>(stream, offset, keep, x, y, begin, end);
}

// Rounds elements [begin, end), whose numbers in the stream are `offset` more.
void RoundElements(const RandomStream& stream, int64_t offset, NoiseHalf half, const float* x,
                   BFloat16* y, int64_t begin, int64_t end) {
  HWY_ALIGN uint32_t words[kWordsOfChunk];
  for (int64_t run = begin; run < end; run += kChunk) {
    const int64_t count = std::min(kChunk, end - run);
    draw_words(stream, offset + run, count, words);
    const uint32_t* first = words + (offset + run) % 4;
    for (int64_t i = 0; i < count; i += lanes()) {
      const auto noise = noise_of(hn::LoadU(Words(), first + i), half);
      store(rounded_to_bf16(load(x + run + i, count - i), noise), y + run + i, count - i);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(UniformElements);
HWY_EXPORT(DropoutElements);
HWY_EXPORT(RoundElements);

constexpr int64_t kGrain = 4096;

// The operands of a random node that select its stream and elements (core/ops/random.cc).
class StreamOperands {
 public:
  StreamOperands(const Node& node, size_t first_operand, const Type& type)
      : seed_(node.attributes.get(key::kSeed)),
        path_(node.attributes.get(key::kStream)),
        layer_(node.attributes.get(key::kLayer)),
        loop_(node.attributes.get(key::kLoop)),
        part_(node.attributes.get(key::kPart)),
        first_operand_(first_operand),
        elements_(type, node.attributes) {}

  RandomStream stream(const HostArgs& args) const {
    const int64_t layer = loop_ ? *input_as<int32_t>(args, first_operand_ + 1) : layer_;
    return {random_key(seed_, path_, layer),
            static_cast<uint64_t>(int64_t{*input_as<int32_t>(args, first_operand_)})};
  }
  // Calls run(offset, begin, end) for the runs of `range` that are contiguous in the global array:
  // element i of a run has the global index offset + i.
  template <typename Run>
  void for_each_run(const HostArgs& args, Range range, const Run& run) const {
    Examples examples;
    if (part_ != 0) examples = {*input_as<int32_t>(args, first_operand_ + (loop_ ? 2 : 1)), part_};
    elements_.for_each_run(range.begin, range.end, examples, run);
  }

 private:
  uint64_t seed_;
  std::string path_;
  int64_t layer_;
  bool loop_;
  int64_t part_;
  size_t first_operand_;
  ShardIndexMap elements_;
};

class UniformKernel final : public HostKernel {
 public:
  UniformKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : operands_(node, 0, graph.type(node.outputs[0])),
        count_(graph.type(node.outputs[0]).elements()),
        pool_(pool) {}

  void run(const HostArgs& args) override {
    const RandomStream stream = operands_.stream(args);
    float* out = output_as<float>(args, 0);
    pool_.parallel(count_, kGrain, [&](Range range, int) {
      operands_.for_each_run(args, range, [&](int64_t offset, int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(UniformElements)
        (stream, offset + begin, offset + end, out + begin);
      });
    });
  }

 private:
  StreamOperands operands_;
  int64_t count_;
  ThreadPool& pool_;
};

class DropoutKernel final : public HostKernel {
 public:
  DropoutKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : operands_(node, 1, graph.type(node.inputs[0])),
        dtype_(vector_dtype(graph, node, 0)),
        count_(graph.type(node.inputs[0]).elements()),
        keep_(static_cast<float>(node.attributes.get(key::kKeep))),
        pool_(pool) {}

  bool may_overwrite(int64_t, int64_t input) const override { return input == 0; }

  void run(const HostArgs& args) override {
    const RandomStream stream = operands_.stream(args);
    pool_.parallel(count_, kGrain, [&](Range range, int) {
      operands_.for_each_run(args, range, [&](int64_t offset, int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(DropoutElements)
        (stream, offset, keep_, dtype_, args.inputs[0], args.outputs[0], begin, end);
      });
    });
  }

 private:
  StreamOperands operands_;
  DType dtype_;
  int64_t count_;
  float keep_;
  ThreadPool& pool_;
};

class StochasticRoundKernel final : public HostKernel {
 public:
  StochasticRoundKernel(const Graph& graph, const Node& node, ThreadPool& pool)
      : elements_(graph.type(node.inputs[0]), node),
        half_(node.attributes.get(key::kHalf)),
        count_(graph.type(node.inputs[0]).elements()),
        pool_(pool) {}

  void run(const HostArgs& args) override {
    const RandomStream stream = elements_.stream(*input_as<float>(args, 1));
    pool_.parallel(count_, kGrain, [&](Range range, int) {
      elements_.for_each_run(range, [&](int64_t offset, int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(RoundElements)
        (stream, offset, half_, input_as<float>(args, 0), output_as<BFloat16>(args, 0), begin, end);
      });
    });
  }

 private:
  RoundedElements elements_;
  NoiseHalf half_;
  int64_t count_;
  ThreadPool& pool_;
};

const KernelRegistrar kRegisterUniform{kRandomUniformOp, make_kernel<UniformKernel>};
const KernelRegistrar kRegisterDropout{kDropoutOp, make_kernel<DropoutKernel>};
const KernelRegistrar kRegisterRound{kStochasticRoundOp, make_kernel<StochasticRoundKernel>};

}  // namespace
}  // namespace tessera
#endif  // HWY_ONCE
