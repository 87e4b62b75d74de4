// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/config/experiment.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/plugin_call.h"
#include "core/graph/layer_pieces.h"
#include "core/hparams/convert.h"
#include "core/hparams/text.h"
#include "core/hparams/tree.h"
#include "core/io/file.h"
#include "inputs/checked_input.h"
#include "inputs/score_requests.h"
#include "tasks/task/request_metrics.h"

namespace tessera {
namespace {

bool is_one_of(Strategy strategy, std::initializer_list<Strategy> some) {
  return std::ranges::find(some, strategy) != some.end();
}

bool is_ring(Strategy strategy) {
  using enum Strategy;
  return is_one_of(strategy, {kRing, kFullyShardedRing, kFullyShardedTensorRing});
}

bool uses_context(Strategy strategy) {
  using enum Strategy;
  return is_ring(strategy) ||
         is_one_of(strategy, {kContext, kFullyShardedContext, kFullyShardedTensorContext});
}

bool uses_stages(Strategy strategy) {
  using enum Strategy;
  return is_one_of(
      strategy, {kPipeline, kFullyShardedPipeline, kTensorPipeline, kFullyShardedTensorPipeline});
}

constexpr const char* kHarness = "harness";

// The dataset of eval.harness, in rows and batches as the training input's.
void add_harness(ExperimentConfig* config) {
  const std::string& path = config->eval.harness;
  if (path.empty()) return;
  const ErrorContext where("eval.harness");
  const std::unique_ptr<BaseInput> input = make_input(config->input);
  if (sequence_length(*input) == 0) fail("the training input has no sequences of tokens");
  config->eval_inputs[kHarness] = RequestsInput::HParams{
      .path = path,
      .name = kHarness,
      .global_batch_size = input->global_batch_size(),
      .seq_len = sequence_length(*input),
  };
  config->eval.datasets[kHarness].num_batches = -1;
  config->eval.datasets[kHarness].score_metrics["questions"] = RequestMetrics::HParams{path};
}

}  // namespace

ExperimentConfig with_all_evals(ExperimentConfig config) {
  add_harness(&config);
  std::erase_if(config.eval.datasets, [&](const auto& entry) {
    return !config.eval_inputs.contains(entry.first) &&
           same_value(to_tree(entry.second), to_tree(EvalHParams{}));
  });
  for (const auto& [name, unused] : config.eval_inputs) config.eval.datasets.try_emplace(name);
  return config;
}

ExperimentConfig Experiment::config() const {
  ExperimentConfig config = calling(*this, "build()", [&] { return build(); });
  if (!strategy.has()) return config;
  config.rules = strategy_rules(strategy.get());
  config.mesh.axis_names = strategy_axes(strategy.get(), std::move(config.mesh.axis_names));
  return config;
}

void Experiment::shrink() {
  constexpr int64_t kMostOfAxis = 2;
  for (std::vector<int64_t>* shape : {&ici_mesh_shape, &dcn_mesh_shape})
    for (int64_t& size : *shape) size = std::min(size, kMostOfAxis);
}

std::vector<std::string> strategy_axes(Strategy strategy, std::vector<std::string> axis_names) {
  if (uses_context(strategy) && std::ranges::find(axis_names, "ctx") == axis_names.end())
    axis_names.insert(std::ranges::find(axis_names, "mdl"), "ctx");
  if (uses_stages(strategy) && std::ranges::find(axis_names, kStageAxis) == axis_names.end())
    axis_names.insert(axis_names.begin(), std::string(kStageAxis));
  return axis_names;
}

AxisRules make_rules(const RulesConfig& config) {
  return {parse_rules(config.weights), parse_rules(config.activations)};
}

RulesConfig strategy_rules(Strategy strategy) {
  using enum Strategy;
  std::vector<std::string_view> weights, activations;
  if (strategy == kSequence || strategy == kFullyShardedSequence)
    activations.push_back("residual: seq -> mdl");
  if (strategy == kPax) activations.push_back("residual: embed -> mdl");
  const bool is_context = uses_context(strategy);
  const bool is_tensor =
      !is_one_of(strategy, {kReplicas, kFullySharded, kContext, kFullyShardedContext, kRing,
                            kFullyShardedRing, kPipeline, kFullyShardedPipeline});
  if (is_context && !is_ring(strategy)) {
    activations.push_back(is_tensor ? "attention: heads -> (mdl, ctx), attention: kv_heads -> "
                                      "(mdl, ctx), attention: seq -> ()"
                                    : "attention: heads -> ctx, attention: kv_heads -> ctx, "
                                      "attention: seq -> ()");
  }
  if (is_context) activations.push_back("seq -> ctx");
  if (strategy == kExperts) {
    weights.push_back("experts -> data");
    activations.push_back("experts -> data");
  }
  activations.push_back("batch -> (replica, data)");
  if (uses_stages(strategy)) weights.push_back("layers -> stage");
  if (!is_one_of(strategy,
                 {kReplicas, kTensor, kSequence, kContext, kRing, kPipeline, kTensorPipeline}))
    weights.push_back(is_context ? "embed -> (data, ctx)" : "embed -> data");
  if (is_tensor) {
    // Weights and activations have the same rules, so that no weight moves along mdl: all-gathers
    // are over `data` only.
    constexpr std::string_view kOverModel =
        "mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl";
    weights.push_back(kOverModel);
    activations.push_back(kOverModel);
  }
  return {.weights = fmt::format("{}", fmt::join(weights, ", ")),
          .activations = fmt::format("{}", fmt::join(activations, ", "))};
}

std::vector<std::string> read_set_file(const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file))
    fail("--set_file={}: {}; expected a file such as the search.toml of --search", file.string(),
         std::filesystem::exists(file) ? "is not a file" : "does not exist");
  const Tree tree = parse_toml(read_file(file), file.string());
  const Tree* list = tree.find("set");
  if (tree.keys.size() != 1 || list == nullptr || !list->is_list())
    fail("--set_file={}: expected one list, set = [\"path=value\", …], and nothing else",
         file.string());
  std::vector<std::string> sets;
  for (const Tree& item : list->items) {
    if (item.kind != Tree::Kind::kString)
      fail("--set_file={}: set[{}] is {}, expected a string such as \"strategy=fsdp\"",
           file.string(), sets.size(), item.value_text());
    sets.push_back(item.text);
  }
  return sets;
}

std::string set_file_text(const std::vector<std::string>& sets, std::string_view heading) {
  std::string text;
  for (size_t begin = 0; begin < heading.size();) {
    const size_t end = std::min(heading.find('\n', begin), heading.size());
    text += fmt::format("# {}\n", heading.substr(begin, end - begin));
    begin = end + 1;
  }
  text += "set = [\n";
  for (const std::string& each : sets) text += fmt::format("  {},\n", quoted_text(each));
  return text + "]\n";
}

}  // namespace tessera
