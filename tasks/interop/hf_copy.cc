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

// The constructor visits the runs of values that the rows, the part and the block have in common.
template <typename Visit>
class Runs {
 public:
  Runs(const HfTensor& tensor, const HfPart& part, RowRange rows, const Region& block, Visit visit)
      : part_(part), rows_(rows), block_(block), visit_(visit) {
    strides_.assign(block.shape.size(), 1);
    for (size_t i = strides_.size(); i-- > 1;) strides_[i - 1] = strides_[i] * block.shape[i];
    index_ = part.begin;
    descend(0, -rows_.begin * tensor.row_elements);
  }

 private:
  void descend(size_t level, int64_t theirs) {
    const HfPart::Step& step = part_.steps[level];
    int64_t first = step.begin, last = step.begin + step.size;
    if (level == 0) {
      first = std::max(first, rows_.begin);
      last = std::min(last, rows_.end);
    }
    if (level + 1 == part_.steps.size()) {
      run(step, first, last, theirs);
      return;
    }
    for (int64_t i = first; i < last; ++i) {
      const int64_t move = (i - step.begin) * step.factor;
      if (step.axis >= 0) index_[static_cast<size_t>(step.axis)] += move;
      descend(level + 1, theirs + i * step.stride);
      if (step.axis >= 0) index_[static_cast<size_t>(step.axis)] -= move;
    }
  }

  void run(const HfPart::Step& step, int64_t first, int64_t last, int64_t theirs) {
    int64_t ours = 0;
    for (size_t axis = 0; axis < index_.size(); ++axis) {
      if (static_cast<int64_t>(axis) == step.axis) continue;
      const int64_t at = index_[axis] - block_.origin[axis];
      if (at < 0 || at >= block_.shape[axis]) return;
      ours += at * strides_[axis];
    }
    Run run{.their_step = step.stride};
    if (step.axis >= 0) {
      // The i for which begin + factor·(i - step.begin) lies within the block.
      const auto axis = static_cast<size_t>(step.axis);
      const int64_t begin = index_[axis] - block_.origin[axis];
      const int64_t below = std::max<int64_t>(0, -begin);
      first = std::max(first, step.begin + (below + step.factor - 1) / step.factor);
      const int64_t room = block_.shape[axis] - begin;
      last =
          std::min(last, room <= 0 ? first : step.begin + (room + step.factor - 1) / step.factor);
      ours += (begin + (first - step.begin) * step.factor) * strides_[axis];
      run.our_step = step.factor * strides_[axis];
    }
    if (first >= last) return;
    run.theirs = theirs + first * step.stride;
    run.ours = ours;
    run.count = last - first;
    visit_(run);
  }

  const HfPart& part_;
  RowRange rows_;
  const Region& block_;
  Visit visit_;
  std::vector<int64_t> strides_, index_;
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

Region block_for(const HfPart& part, RowRange rows) {
  Region block{part.begin, std::vector<int64_t>(part.begin.size(), 1)};
  for (const HfPart::Step& step : part.steps)
    if (step.axis >= 0)
      block.shape[static_cast<size_t>(step.axis)] += (step.size - 1) * step.factor;
  const HfPart::Step& outermost = part.steps[0];
  const auto shares_axis = [&](const HfPart::Step& step) { return step.axis == outermost.axis; };
  if (outermost.axis >= 0 &&
      std::count_if(part.steps.begin(), part.steps.end(), shares_axis) == 1) {
    const auto axis = static_cast<size_t>(outermost.axis);
    block.origin[axis] += rows.begin - outermost.begin;
    block.shape[axis] = rows.size();
  }
  return block;
}

bool follows_rows(const HfTensor& tensor, const HfPart& part, const Type& ours) {
  if (tensor.parts.size() != 1) return false;
  const int64_t leading = ours.axes[0].name == kLayersAxis ? 1 : 0;
  return part.steps[0].axis == leading && part.steps[0].factor == 1 && part.steps.size() > 1;
}

}  // namespace tessera
