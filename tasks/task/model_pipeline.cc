// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/model_pipeline.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <ranges>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/layer_pieces.h"
#include "core/graph/type.h"
#include "core/ops/repeat.h"
#include "core/schedules/generators.h"
#include "tasks/task/base_task.h"
#include "tasks/task/microbatches.h"
#include "tasks/task/pipeline_schedules.h"

namespace tessera {
namespace {

bool splits_layers(const AxisRules& rules) {
  return std::ranges::any_of(rules.weights, [](const AxisRule& rule) {
    return rule.axis == kLayersAxis && std::ranges::find(rule.mesh, kStageAxis) != rule.mesh.end();
  });
}

// The field that asks for a pipeline, or "".
std::string_view pipeline_field(const TrainHParams& train) {
  if (train.pipeline_schedule.has()) return "pipeline_schedule";
  return train.layers_per_piece.empty() ? "" : "layers_per_piece";
}

void check_mesh(const TrainHParams& train, const AxisRules& rules, const Mesh& mesh) {
  const std::string_view field = pipeline_field(train);
  if (field.empty()) return;
  if (!mesh.has(kStageAxis))
    fail(
        "task.train.{} is set, but the mesh ({}) has no axis 'stage' for the stages of a pipeline; "
        "strategy=pipeline adds it and splits the layers over it",
        field, mesh.text());
  if (mesh.stages() > 1 && !splits_layers(rules))
    fail(
        "task.train.{} is set and the mesh has stage={}, but rules.weights (\"{}\") does not split "
        "layers over stages; add layers -> stage",
        field, mesh.stages(), rules_text(rules.weights));
}

// The microbatches of a chunk's tasks of one kind, in the order in which they run.
using TaskOrders = std::map<std::tuple<int64_t, int64_t, PipelineWork>, std::vector<int64_t>>;

void check_order(PipelineTable table) {
  std::ranges::sort(table.tasks);
  TaskOrders orders;
  for (const PipelineTask& task : table.tasks)
    orders[{task.stage, task.chunk, task.work}].push_back(task.microbatch);
  for (const auto& [key, order] : orders) {
    if (std::ranges::is_sorted(order)) continue;
    fail(
        "numerics=mesh_invariant adds the terms of microbatches in their order, but schedule {} "
        "runs {} of stage {} in the order {}; use OneForwardOneBackward, "
        "InterleavedOneForwardOneBackward or ZeroBubbleH1",
        table.name, work_letter(std::get<PipelineWork>(key)), std::get<0>(key),
        fmt::join(order, " "));
  }
}

PipelineTable training_table(const TrainHParams& train, int64_t stages) {
  if (train.pipeline_schedule.has()) {
    const ErrorContext where(
        fmt::format("task.train.pipeline_schedule, with num_microbatches={} on stage={}",
                    train.num_microbatches, stages));
    return checked_table(train.pipeline_schedule, stages, train.num_microbatches);
  }
  if (train.num_microbatches == 1)
    fail(
        "the mesh has stage={0}, so a batch goes through the stages in microbatches, but "
        "task.train.num_microbatches is 1 and all stages but one would always be idle; set it to "
        "{0} or more: with M of them a stage is idle for {1} of M+{1} parts of a step",
        stages, stages - 1);
  return checked_table(OneForwardOneBackward::HParams{}, stages, train.num_microbatches);
}

// The path of the stack that a weight belongs to: "lm.transformer.x_layers[]".
std::string stack_of(const Parameter& parameter) {
  constexpr std::string_view kStack = "[]";
  return parameter.path.substr(0, parameter.path.find(kStack) + kStack.size());
}

// The number of layers of the model's only stack.
int64_t stacked_layers(const ParameterTable& parameters, int64_t stages) {
  std::map<std::string, int64_t> stacks;
  for (const Parameter& each : parameters.parameters())
    if (each.stack > 0) stacks[stack_of(each)] = each.stack;
  if (stacks.empty())
    fail(
        "rules.weights splits layers over stage={}, but the model has no stack of layers: no "
        "weight has the axis layers; use a Repeated in place of a StackedTransformer",
        stages);
  if (stacks.size() > 1)
    fail(
        "rules.weights splits layers over stage={}, but the model has {} stacks of layers ({}); a "
        "pipeline runs one: use a StackedTransformer in place of the Repeated of the others, whose "
        "layers then belong to the first or the last stage",
        stages, stacks.size(), fmt::join(std::views::keys(stacks), ", "));
  return stacks.begin()->second;
}

// Weights of the stack are split over stages, and no others.
void check_weights(const ParameterTable& parameters, const AxisRules& rules, const Mesh& mesh) {
  const std::vector<std::string> only_stage = {std::string(kStageAxis)};
  for (const Parameter& each : parameters.parameters()) {
    const Type type = stored_type(each, rules, mesh);
    const ErrorContext where(each.path);
    if (each.stack > 0 && type.axes.front().split != only_stage)
      fail(
          "the weight is stored as {}, expected layers/stage, as of all weights of the stack; its "
          "layer has rules or a layout of its own",
          type.text());
    for (size_t i = each.stack > 0 ? 1 : 0; i < type.axes.size(); ++i)
      if (type.axes[i].split_over(kStageAxis))
        fail("the weight is stored as {}, but only layers can be split over stage", type.text());
  }
}

std::vector<int64_t> divided(int64_t layers, const std::vector<int64_t>& given,
                             const PipelineTable& table) {
  const int64_t pieces = table.pieces();
  const std::string what =
      table.chunks == 1 ? fmt::format("stage={}", table.stages)
                        : fmt::format("stage={} with {} chunks each", table.stages, table.chunks);
  if (given.empty()) {
    if (layers % pieces != 0)
      fail(
          "{} layers cannot be divided into {} equal pieces ({}); the nearest number is {}, or "
          "give the layers of each piece by task.train.layers_per_piece",
          layers, pieces, what, nearest_multiple(layers, pieces));
    return std::vector<int64_t>(static_cast<size_t>(pieces), layers / pieces);
  }
  const ErrorContext where("task.train.layers_per_piece");
  const std::string list = fmt::format("[{}]", fmt::join(given, ","));
  if (std::ssize(given) != pieces)
    fail("{} has {} numbers, expected one for each of {} pieces ({}), in the order of the model",
         list, given.size(), pieces, what);
  if (const int64_t sum = std::accumulate(given.begin(), given.end(), int64_t{0}); sum != layers)
    fail("{} is {} layers together, expected {}, those of the model", list, sum, layers);
  return given;
}

const Node* loop_over_microbatches(const Graph& traced) {
  for (const Node& node : traced.nodes())
    if (is_repeat(node) && Loop(node).axis() == kMicrobatchAxis) return &node;
  return nullptr;
}

}  // namespace

bool is_pipelined(const AxisRules& rules, const Mesh& mesh) {
  return mesh.stages() > 1 && splits_layers(rules);
}

std::optional<ModelPipeline> model_pipeline(const TrainHParams& train,
                                            const ParameterTable& parameters,
                                            const AxisRules& rules, const Mesh& mesh) {
  check_mesh(train, rules, mesh);
  if (!is_pipelined(rules, mesh)) return std::nullopt;
  PipelineTable table = training_table(train, mesh.stages());
  if (train.numerics == Numerics::kMeshInvariant) check_order(table);
  const int64_t layers = stacked_layers(parameters, mesh.stages());
  check_weights(parameters, rules, mesh);
  std::vector<int64_t> pieces = divided(layers, train.layers_per_piece, table);
  return ModelPipeline{std::move(table), std::move(pieces)};
}

Mesh with_pieces(Mesh mesh, const ModelPipeline& pipeline) {
  if (!LayerPieces(pipeline.layers_of_pieces, mesh.stages()).is_equal_blocks())
    mesh.divide_layers(pipeline.layers_of_pieces);
  return mesh;
}

std::optional<PipelineTable> table_for(const ModelPipeline& pipeline, const Graph& traced) {
  const Node* const loop = loop_over_microbatches(traced);
  if (loop == nullptr) return std::nullopt;
  const bool is_training = traced.find_input(names::kLearningRate) != nullptr;
  if (is_training) return pipeline.table;
  return forward_table(pipeline.table.stages, Loop(*loop).count(), pipeline.table.chunks);
}

std::string remark_on_decoding(const ModelPipeline& pipeline) {
  return fmt::format(
      "note: decoding does not run in stages: every device gathers the layers of all {} stages; a "
      "mesh without stages decodes the same with less memory and traffic",
      pipeline.table.stages);
}

std::vector<std::string> warnings_of_shared_weights(std::span<const Buffer> arrays,
                                                    const Mesh& mesh) {
  std::vector<std::string> warnings;
  for (const Buffer& each : arrays) {
    if (each.kind != InputKind::kParameter || split_over(each.type, kStageAxis)) continue;
    std::vector<int64_t> stages = each.stages;
    if (stages.empty())
      for (int64_t stage = 0; stage < mesh.stages(); ++stage) stages.push_back(stage);
    if (stages.size() < 2) continue;
    warnings.push_back(
        fmt::format("{} is on stages {}, which add up its gradient in every step: {} bytes on each "
                    "of their devices",
                    each.name, fmt::join(stages, ", "), local_type(each.type, mesh).bytes()));
  }
  return warnings;
}

}  // namespace tessera
