// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/step_sizes.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/type.h"

namespace tessera {
namespace {

int64_t tokens_of_row(const BaseInput& input) {
  const Batch arrays = input.specification();
  const auto ids = arrays.find("ids");
  if (ids == arrays.end()) return 0;
  return element_count({ids->second.shape.begin() + 1, ids->second.shape.end()});
}

// Divides the rows of the input.
void divide_rows(const BaseInput& input, StepSize* size) {
  const int64_t length = sequence_length(input);
  if (length == 0 || length % size->seq_len != 0)
    fail("seq_len is {}, expected a divisor of {}, the seq_len of input '{}', whose rows are cut",
         size->seq_len, length, input.name());
  for (const auto& [name, array] : input.specification())
    if (array.axes.size() > 1 && array.axes != std::vector<std::string>{"batch", "seq"})
      fail("the rows of input '{}' cannot be cut: '{}' has the axes [{}], expected [batch seq]",
           input.name(), name, fmt::join(array.axes, " "));
  const int64_t pieces = length / size->seq_len;
  if (size->rows % pieces != 0)
    fail("batch_size is {}, expected a multiple of {}: so many rows are cut from one of the input",
         size->rows, pieces);
  size->input_rows = size->rows / pieces;
  size->tokens = size->rows * size->seq_len;
}

}  // namespace

int64_t StepSize::steps_before(int64_t step) const {
  return std::max<int64_t>(0, std::min(step, end_step) - start_step);
}

StepSizes::StepSizes(const std::vector<TrainPhase>& phases, const BaseInput& input)
    : own_length_(sequence_length(input)) {
  const int64_t own_rows = input.global_batch_size();
  for (const TrainPhase& phase : phases.empty() ? std::vector<TrainPhase>(1) : phases) {
    StepSize size{.start_step = phase.start_step,
                  .rows = phase.batch_size.value_or(own_rows),
                  .seq_len = phase.seq_len.value_or(own_length_)};
    size.input_rows = size.rows;
    size.tokens = size.rows * tokens_of_row(input);
    if (!phases.empty())
      size.where = fmt::format("task.train.phases[{}] ({} rows of {} tokens)", phases_.size(),
                               size.rows, size.seq_len);
    const ErrorPrefix where(size.where);
    if (size.seq_len != own_length_) divide_rows(input, &size);
    if (phases_.empty() && size.start_step != 0)
      fail("start_step is {}, expected 0: the first phase begins with the run", size.start_step);
    if (!phases_.empty() && size.start_step <= phases_.back().start_step)
      fail("start_step is {}, expected more than that of the phase before", size.start_step);
    if (size.input_rows != own_rows && !input.follows_sizes())
      fail(
          "batches need {} rows of input '{}', whose global_batch_size={} cannot change during a "
          "run, as those of streams with sharding=by_host; build flat tokens of the text "
          "(flat_tokens build), or give "
          "all phases the same number of tokens per batch",
          size.input_rows, input.name(), own_rows);
    change_rows_ = change_rows_ || size.input_rows != own_rows;
    for (const StepSize& other : phases_) size.program = std::max(size.program, other.program + 1);
    for (const StepSize& other : phases_)
      if (other.rows == size.rows && other.seq_len == size.seq_len) size.program = other.program;
    if (!phases_.empty()) phases_.back().end_step = size.start_step;
    phases_.push_back(std::move(size));
  }
}

const StepSize& StepSizes::at(int64_t step) const {
  return *(std::ranges::upper_bound(phases_, step, {}, &StepSize::start_step) - 1);
}

int64_t StepSizes::tokens_before(int64_t step) const {
  int64_t tokens = 0;
  for (const StepSize& each : phases_) tokens += each.steps_before(step) * each.tokens;
  return tokens;
}

const StepSize& StepSizes::main() const {
  return *std::ranges::max_element(phases_, {}, &StepSize::tokens);
}

void StepSizes::cut(Batch& batch, const StepSize& size) const {
  if (size.seq_len != own_length_) cut_rows(batch, size.seq_len);
}

Batch global_specification(const BaseInput& input, const StepSize& size) {
  Batch specification = input.specification();
  for (auto& [name, array] : specification) {
    array.shape[0] = size.rows;
    if (size.rows != size.input_rows && array.shape.size() > 1) array.shape[1] = size.seq_len;
  }
  return specification;
}

Infeed process_infeed(const StepSizes& sizes, const Mesh& mesh, const AxisRules& rules,
                      int64_t process, int64_t processes, int64_t devices) {
  Infeed infeed{.infeed_host_index = process, .num_infeed_hosts = processes};
  for (const StepSize& size : sizes.phases()) {
    const ErrorContext where(size.where);
    const Type type = apply_rules(rules.activations, mesh,
                                  make_type(DType::kI32, {{"batch", size.input_rows, {}}}));
    if (const auto problem = type_problem(type, mesh)) fail("global_batch_size: {}", *problem);
    std::vector<RowRange> rows;
    if (devices > 0) rows = rows_of(type, mesh, process * devices, devices);
    if (infeed.rows.empty()) infeed.rows = rows;
    if (sizes.change_rows())
      infeed.sizes.push_back({size.start_step, size.input_rows, std::move(rows)});
  }
  return infeed;
}

}  // namespace tessera
