// SPDX-License-Identifier: Apache-2.0
#include "tasks/plan/pipeline_text.h"

#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "core/io/json.h"

namespace tessera {
namespace {

std::string list_json(const std::vector<int64_t>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
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

std::string pipeline_plan_text(const ModelPipeline& pipeline) {
  const PipelineTable& table = pipeline.table;
  const PipelineTimeline timeline = timeline_of_layers(pipeline);
  std::string text = fmt::format("\npipeline: {}, {} stages, {} microbatches\n", table.name,
                                 table.stages, table.microbatches);
  if (table.chunks > 1)
    text += row("chunks of a stage", std::to_string(table.chunks), "pieces of the model");
  text += row("ticks", std::to_string(table.ticks()), "of one task of a piece each");
  text += row("layers of pieces", fmt::format("{}", fmt::join(pipeline.layers_of_pieces, " ")),
              "in the order of the model");
  text += row("activations held", fmt::format("{}", fmt::join(peak_live_activations(table), " ")),
              "at each stage, of a microbatch in a piece");
  text += row("idle", fmt::format("{:.1f} %", 100.0 * timeline.bubble_fraction()),
              "of the time of all stages, with the layers alone");
  text += "  in units of a layer's forward pass (its backward pass takes two):\n";
  std::istringstream lines(bubble_text(timeline));
  for (std::string line; std::getline(lines, line);) text += "  " + line + "\n";
  return text;
}

std::string pipeline_plan_json(const ModelPipeline& pipeline) {
  const PipelineTable& table = pipeline.table;
  return JsonLine()
      .add("schedule", table.name)
      .add("stages", table.stages)
      .add("chunks", table.chunks)
      .add("microbatches", table.microbatches)
      .add("ticks", table.ticks())
      .add_raw("layers_of_pieces", list_json(pipeline.layers_of_pieces))
      .add_raw("activations_held", list_json(peak_live_activations(table)))
      .add("idle_fraction", timeline_of_layers(pipeline).bubble_fraction())
      .text();
}

}  // namespace tessera
