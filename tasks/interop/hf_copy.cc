// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/hf_copy.h"

#include <algorithm>

#include "core/base/error.h"

namespace tessera {
namespace {

// A strided run of values along the innermost step.
struct Run {
  int64_t theirs = 0, their_step = 1;  // In the tensor's rows,
  int64_t ours = 0, our_step = 1;      // and in our block.
  int64_t count = 0;
};

// Elements [begin, end) of a tensor.
struct ElementRange {
  int64_t begin = 0, end = 0;
};

ElementRange elements_of(const HfTensor& tensor, RowRange rows) {
  return {rows.begin * tensor.row_elements, rows.end * tensor.row_elements};
}

// The indices i of a step for which some of the `span` elements from base + i·stride are in the
// range.
RowRange indices_in(const HfPart::Step& step, int64_t base, int64_t span, ElementRange range) {
  const auto ceiling = [&](int64_t distance) {
    return distance <= 0 ? 0 : (distance + step.stride - 1) / step.stride;
  };
  return {ceiling(range.begin - base - span + 1), std::min(step.size, ceiling(range.end - base))};
}

// The distance from the first to the last element of the steps from `level` on, plus 1.
int64_t span_from(const HfPart& part, size_t level) {
  int64_t span = 1;
  for (size_t i = level; i < part.steps.size(); ++i)
    span += (part.steps[i].size - 1) * part.steps[i].stride;
  return span;
}

// The constructor visits the runs of values that the rows, the part and the block have in common.
template <typename Visit>
class Runs {
 public:
  Runs(const HfTensor& tensor, const HfPart& part, RowRange rows, const Region& block, Visit visit)
      : part_(part), range_(elements_of(tensor, rows)), block_(block), visit_(visit) {
    strides_.assign(block.shape.size(), 1);
    for (size_t i = strides_.size(); i-- > 1;) strides_[i - 1] = strides_[i] * block.shape[i];
    for (size_t level = 0; level < part.steps.size(); ++level)
      spans_.push_back(span_from(part, level + 1));
    index_ = part.begin;
    descend(0, part.offset);
  }

 private:
  void descend(size_t level, int64_t theirs) {
    const HfPart::Step& step = part_.steps[level];
    const RowRange indices = indices_in(step, theirs, spans_[level], range_);
    if (level + 1 == part_.steps.size()) return run(step, indices, theirs);
    int64_t& index = index_[static_cast<size_t>(step.axis)];
    const int64_t before = index;
    for (int64_t i = indices.begin; i < indices.end; ++i) {
      index = before + i * step.factor;
      descend(level + 1, theirs + i * step.stride);
    }
    index = before;
  }

  void run(const HfPart::Step& step, RowRange indices, int64_t theirs) {
    const auto axis = static_cast<size_t>(step.axis);
    int64_t ours = 0;
    for (size_t i = 0; i < index_.size(); ++i) {
      if (i == axis) continue;
      const int64_t at = index_[i] - block_.origin[i];
      if (at < 0 || at >= block_.shape[i]) return;
      ours += at * strides_[i];
    }
    // The i for which begin + factor·i lies within the block.
    const int64_t begin = index_[axis] - block_.origin[axis];
    const auto ceiling = [&](int64_t distance) {
      return distance <= 0 ? 0 : (distance + step.factor - 1) / step.factor;
    };
    const int64_t first = std::max(indices.begin, ceiling(-begin));
    const int64_t last = std::min(indices.end, ceiling(block_.shape[axis] - begin));
    if (first >= last) return;
    visit_({.theirs = theirs + first * step.stride - range_.begin,
            .their_step = step.stride,
            .ours = ours + (begin + first * step.factor) * strides_[axis],
            .our_step = step.factor * strides_[axis],
            .count = last - first});
  }

  const HfPart& part_;
  ElementRange range_;
  const Region& block_;
  Visit visit_;
  std::vector<int64_t> strides_, spans_, index_;
};

// Calls action with a pointer to the block's elements of their type.
template <typename Action>
void with_elements(const OurBlock& ours, Action action) {
  if (ours.dtype == DType::kF32) return action(reinterpret_cast<float*>(ours.bytes.data()));
  if (ours.dtype == DType::kBF16) return action(reinterpret_cast<BFloat16*>(ours.bytes.data()));
  if (ours.dtype == DType::kF64) return action(reinterpret_cast<double*>(ours.bytes.data()));
  CHECK(false, "weights of {}", dtype_name(ours.dtype));
}

template <typename From, typename To>
void copy_run(const From* from, int64_t from_step, To* to, int64_t to_step, int64_t count,
              float offset) {
  // Without an offset the bits are copied unchanged.
  if (offset == 0.0f) {
    for (int64_t i = 0; i < count; ++i) to[i * to_step] = static_cast<To>(from[i * from_step]);
  } else {
    for (int64_t i = 0; i < count; ++i)
      to[i * to_step] = static_cast<To>(static_cast<float>(from[i * from_step]) + offset);
  }
}

}  // namespace

void copy_from_hf(const HfTensor& tensor, const HfPart& part, RowRange rows,
                  std::span<const float> values, const OurBlock& ours) {
  CHECK(static_cast<int64_t>(values.size()) == rows.size() * tensor.row_elements);
  with_elements(ours, [&](auto* elements) {
    Runs(tensor, part, rows, ours.block, [&](const Run& run) {
      copy_run(values.data() + run.theirs, run.their_step, elements + run.ours, run.our_step,
               run.count, -static_cast<float>(tensor.offset));
    });
  });
}

void copy_to_hf(const HfTensor& tensor, const HfPart& part, RowRange rows, const OurBlock& ours,
                std::span<float> values) {
  CHECK(static_cast<int64_t>(values.size()) == rows.size() * tensor.row_elements);
  with_elements(ours, [&](const auto* elements) {
    Runs(tensor, part, rows, ours.block, [&](const Run& run) {
      copy_run(elements + run.ours, run.our_step, values.data() + run.theirs, run.their_step,
               run.count, static_cast<float>(tensor.offset));
    });
  });
}

Region block_for(const HfTensor& tensor, const HfPart& part, RowRange rows) {
  Region block{part.begin, std::vector<int64_t>(part.begin.size(), 1)};
  for (const HfPart::Step& step : part.steps)
    block.shape[static_cast<size_t>(step.axis)] += (step.size - 1) * step.factor;
  const HfPart::Step& outermost = part.steps[0];
  const auto shares_axis = [&](const HfPart::Step& step) { return step.axis == outermost.axis; };
  if (std::count_if(part.steps.begin(), part.steps.end(), shares_axis) == 1) {
    const RowRange indices =
        indices_in(outermost, part.offset, span_from(part, 1), elements_of(tensor, rows));
    const auto axis = static_cast<size_t>(outermost.axis);
    block.origin[axis] += indices.begin;
    block.shape[axis] = std::max<int64_t>(0, indices.size());
  }
  return block;
}

bool follows_rows(const HfTensor& tensor, const HfPart& part, const Type& ours) {
  if (tensor.parts.size() != 1) return false;
  const int64_t leading = ours.axes[0].name == kLayersAxis ? 1 : 0;
  return part.steps[0].axis == leading && part.steps[0].factor == 1 && part.steps.size() > 1;
}

}  // namespace tessera
