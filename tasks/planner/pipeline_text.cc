// SPDX-License-Identifier: Apache-2.0
// The pipeline of a training step in its plan: the schedule, the layers, activations and memory of
// each stage, and when a stage is idle. The times are those of layers alone, in units of a forward
// pass of one layer; a backward pass takes two, one for the input and one for the weights.
#include <ranges>
#include <sstream>
#include <string_view>

#include <fmt/ranges.h>

#include "core/io/json.h"
#include "tasks/planner/plan.h"

namespace tessera {
namespace {

// Numbers in a row of the plan; the last ones of many are left out.
std::string list_text(const std::vector<int64_t>& numbers) {
  constexpr size_t kMost = 24;
  const auto shown = numbers | std::views::take(kMost);
  return fmt::format("{}{}", fmt::join(shown, " "), numbers.size() > kMost ? " .." : "");
}

// For each stage the tasks in their order: ["F0", start, end].
std::string timeline_json(const PipelineTimeline& timeline) {
  const auto task_json = [&](int64_t index) {
    const TimedTask& timed = timeline.tasks[static_cast<size_t>(index)];
    return fmt::format("[\"{}\", {}, {}]", task_text(timed.task), timed.start, timed.end);
  };
  return json_list(stage_orders(timeline.table),
                   [&](const std::vector<int64_t>& order) { return json_list(order, task_json); });
}

std::string row(std::string_view name, const std::string& value, std::string_view remark) {
  return fmt::format("  {:<24}{:>12}   {}\n", name, value, remark);
}

}  // namespace

PipelineTimeline timeline_of_layers(const ModelPipeline& pipeline) {
  PipelineCosts costs;
  costs.pieces.clear();
  for (const int64_t layers : pipeline.layers_of_pieces) {
    const auto time = static_cast<double>(layers);
    costs.pieces.push_back({time, time, time});
  }
  return pipeline_timeline(pipeline.table, costs);
}

std::string pipeline_plan_text(const PlannedPipeline& planned) {
  const ModelPipeline& pipeline = planned.division;
  const PipelineTable& table = pipeline.table;
  const PipelineTimeline timeline = timeline_of_layers(pipeline);
  std::string text = fmt::format("\npipeline: {}, {} stages, {} microbatches\n", table.name,
                                 table.stages, table.microbatches);
  if (table.chunks > 1)
    text += row("chunks of a stage", std::to_string(table.chunks), "pieces of the model");
  text += row("ticks", std::to_string(table.ticks()), "of one task of a piece each");
  text += row("layers of pieces", list_text(pipeline.layers_of_pieces), "in order");
  text += row("activations held", list_text(peak_live_activations(table)), "at each stage");
  text += row("idle", fmt::format("{:.1f} %", 100.0 * timeline.bubble_fraction()),
              "of the time of all stages, with the layers alone");
  for (const auto& [stage, bytes] : planned.peaks)
    text += row("memory of stage " + stage, size_text(bytes), fmt::format("{} bytes", bytes));
  text += "  in units of a layer's forward pass (its backward pass takes two):\n";
  std::istringstream lines(bubble_text(timeline));
  for (std::string line; std::getline(lines, line);) text += "  " + line + "\n";
  return text;
}

std::string pipeline_plan_json(const PlannedPipeline& planned) {
  const ModelPipeline& pipeline = planned.division;
  const PipelineTable& table = pipeline.table;
  const PipelineTimeline timeline = timeline_of_layers(pipeline);
  return JsonLine()
      .add("schedule", table.name)
      .add("stages", table.stages)
      .add("chunks", table.chunks)
      .add("microbatches", table.microbatches)
      .add("ticks", table.ticks())
      .add_raw("layers_of_pieces", json_list(pipeline.layers_of_pieces))
      .add_raw("activations_held", json_list(peak_live_activations(table)))
      .add("idle_fraction", timeline.bubble_fraction())
      .add_raw("peak_bytes", bytes_json(planned.peaks))
      .add_raw("timeline", timeline_json(timeline))
      .text();
}

}  // namespace tessera
