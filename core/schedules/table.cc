// SPDX-License-Identifier: Apache-2.0
#include "core/schedules/table.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {
namespace {

// Return the output of a piece, and the gradient of its input.
PipelineValue activation_of(int64_t piece, int64_t microbatch) {
  return {PipelineValue::Kind::kActivation, piece, microbatch};
}
PipelineValue gradient_of(int64_t piece, int64_t microbatch) {
  return {PipelineValue::Kind::kGradient, piece, microbatch};
}

}  // namespace

char work_letter(PipelineWork work) {
  switch (work) {
    case PipelineWork::kForward:
      return 'F';
    case PipelineWork::kBackward:
      return 'B';
    case PipelineWork::kBackwardInput:
      return 'I';
    case PipelineWork::kBackwardWeight:
      return 'W';
  }
  CHECK(false);
}

int64_t PipelineTable::ticks() const {
  int64_t last = -1;
  for (const PipelineTask& task : tasks) last = std::max(last, task.tick);
  return last + 1;
}

std::vector<PipelineValue> needed_values(const PipelineTable& table, const PipelineTask& task) {
  const int64_t piece = table.piece(task);
  const int64_t microbatch = task.microbatch;
  switch (task.work) {
    case PipelineWork::kForward:
      if (piece == 0) return {};
      return {activation_of(piece - 1, microbatch)};
    case PipelineWork::kBackward:
    case PipelineWork::kBackwardInput:
      if (piece == table.pieces() - 1) return {activation_of(piece, microbatch)};
      return {activation_of(piece, microbatch), gradient_of(piece + 1, microbatch)};
    case PipelineWork::kBackwardWeight:
      return {gradient_of(piece, microbatch)};
  }
  CHECK(false);
}

std::optional<PipelineValue> made_value(const PipelineTable& table, const PipelineTask& task) {
  switch (task.work) {
    case PipelineWork::kForward:
      return activation_of(table.piece(task), task.microbatch);
    case PipelineWork::kBackward:
    case PipelineWork::kBackwardInput:
      return gradient_of(table.piece(task), task.microbatch);
    case PipelineWork::kBackwardWeight:
      return std::nullopt;
  }
  CHECK(false);
}

ValueMakers::ValueMakers(const PipelineTable& table)
    : pieces_(table.pieces()),
      microbatches_(table.microbatches),
      makers_(static_cast<size_t>(2 * pieces_ * microbatches_), kNobody) {
  for (size_t i = 0; i < table.tasks.size(); ++i)
    if (const auto value = made_value(table, table.tasks[i]))
      makers_[slot(*value)] = static_cast<int64_t>(i);
}

int64_t ValueMakers::maker(const PipelineValue& value) const { return makers_[slot(value)]; }

size_t ValueMakers::slot(const PipelineValue& value) const {
  const int64_t kind = value.kind == PipelineValue::Kind::kActivation ? 0 : 1;
  return static_cast<size_t>((kind * pieces_ + value.piece) * microbatches_ + value.microbatch);
}

std::vector<std::vector<int64_t>> stage_orders(const PipelineTable& table) {
  std::vector<std::vector<int64_t>> orders(static_cast<size_t>(table.stages));
  for (size_t i = 0; i < table.tasks.size(); ++i)
    orders[static_cast<size_t>(table.tasks[i].stage)].push_back(static_cast<int64_t>(i));
  for (auto& order : orders)
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
      return table.tasks[static_cast<size_t>(a)].tick < table.tasks[static_cast<size_t>(b)].tick;
    });
  return orders;
}

std::vector<std::vector<int64_t>> live_activations(const PipelineTable& table) {
  const size_t ticks = static_cast<size_t>(table.ticks());
  std::vector<std::vector<int64_t>> live(static_cast<size_t>(table.stages),
                                         std::vector<int64_t>(ticks, 0));
  const auto slot = [&](const PipelineTask& task) {
    return static_cast<size_t>(table.piece(task) * table.microbatches + task.microbatch);
  };
  std::vector<int64_t> last_read(static_cast<size_t>(table.pieces() * table.microbatches), -1);
  for (const PipelineTask& task : table.tasks)
    last_read[slot(task)] = std::max(last_read[slot(task)], task.tick);
  for (const PipelineTask& task : table.tasks)
    if (task.work == PipelineWork::kForward)
      for (int64_t tick = task.tick; tick <= last_read[slot(task)]; ++tick)
        ++live[static_cast<size_t>(task.stage)][static_cast<size_t>(tick)];
  return live;
}

std::vector<int64_t> peak_live_activations(const PipelineTable& table) {
  std::vector<int64_t> peaks;
  for (const auto& live : live_activations(table))
    peaks.push_back(live.empty() ? 0 : *std::ranges::max_element(live));
  return peaks;
}

std::string task_text(const PipelineTask& task) {
  const std::string text = fmt::format("{}{}", work_letter(task.work), task.microbatch);
  return task.chunk == 0 ? text : fmt::format("{}.{}", text, task.chunk);
}

}  // namespace tessera
