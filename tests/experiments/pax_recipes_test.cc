// SPDX-License-Identifier: Apache-2.0
// Pax's recipes of c4, c4_multislice, lm_cloud and optimal_scaling: the numbers of weights of Pax's
// tables, batches and microbatches, and MLPerf's rule for GPT-3.
#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/streaming/streaming_text_input.h"
#include "inputs/synthetic_input.h"
#include "plugins/configure.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "tasks/recipes/transformer_lm_recipe.h"
#include "tasks/task/learner/schedules.h"
#include "tasks/task/pipeline_schedules.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

const std::vector<ExperimentEntry>& experiments() {
  static const std::vector<ExperimentEntry> entries = [] {
    REQUIRE(load_plugins(find_plugins(plugin_path({}))).empty());
    return registered_experiments();
  }();
  return entries;
}

ConfiguredExperiment recipe(const std::string& name, const std::vector<std::string>& sets = {}) {
  const auto found = std::ranges::find(experiments(), name, &ExperimentEntry::name);
  INFO(name);
  REQUIRE(found != experiments().end());
  return configure(*found, sets);
}

const SingleTask::HParams& task_of(const ConfiguredExperiment& configured) {
  return configured.config.task.as<SingleTask::HParams>();
}

int64_t weights_of(const ConfiguredExperiment& configured) {
  return task_of(configured).model.instantiate()->parameters().elements();
}

// "1.10", 2 digits after the point, is right for 1104619904 in billions.
bool has_digits(int64_t weights, const std::string& number, double unit) {
  const size_t point = number.find('.');
  const int digits = point == std::string::npos ? 0 : static_cast<int>(number.size() - point - 1);
  return fmt::format("{:.{}f}", static_cast<double>(weights) / unit, digits) == number;
}

TEST_CASE("the recipes of Pax have the numbers of weights of Pax's tables") {
  const std::map<std::string, std::string> billions = {
      {"c4.Spmd1B", "1.10"},
      {"c4.Spmd2B", "2.14"},
      {"c4.Spmd16B", "16.5"},
      {"c4.Spmd32B", "32.5"},
      {"c4.LmCloudSpmd", "0.17"},
      {"c4.SpmdGpt3OrgHPBS1p5k", "175"},
      {"c4.SpmdPipelineGpt3MLPerfBS4k", "175"},
      {"c4.SpmdPipelineGpt3Small", "2.9"},
      {"c4_multislice.Spmd22BMaxText", "21.9"},
      {"c4_multislice.Spmd22B2xv4_128", "21.9"},
      {"c4_multislice.Spmd22B1xv4_384", "24.8"},
      {"c4_multislice.Spmd22B4xv4_8", "0.87"},
      {"c4_multislice.SpmdGpt3DataParallel2x16x16", "175"}};
  for (const auto& [name, expected] : billions) {
    const int64_t weights = weights_of(recipe(name));
    INFO(name << " has " << weights);
    REQUIRE(has_digits(weights, expected, 1e9));
  }
}

TEST_CASE("summaries of Pax's recipes state the numbers of weights that the recipes have") {
  const std::regex pattern("([0-9.]+)([MB]) weights");
  int64_t stated = 0;
  for (const ExperimentEntry& entry : experiments()) {
    const std::string family = family_of(entry.name);
    if (family != "c4" && family != "c4_multislice" && family != "lm_cloud" &&
        family != "optimal_scaling")
      continue;
    INFO(entry.name << ": " << entry.summary);
    // Characters, not bytes: × has two.
    REQUIRE(std::ranges::count_if(entry.summary, [](char c) { return (c & 0xC0) != 0x80; }) <= 100);
    std::smatch match;
    if (!std::regex_search(entry.summary, match, pattern)) continue;
    ++stated;
    const int64_t weights = weights_of(configure(entry, {}));
    INFO(weights);
    REQUIRE(has_digits(weights, match[1], match[2] == "B" ? 1e9 : 1e6));
  }
  REQUIRE(stated >= 40);
}

TEST_CASE("c4 with pax_rows has rows of one segment, without end ids") {
  const auto input_of = [](const std::vector<std::string>& sets) {
    return recipe("c4.Spmd1B", sets).config.input;
  };
  REQUIRE(input_of({}).as<FlatTokensInput::HParams>().labels == Labels::kShiftRight);
  const ExperimentConfig exact = recipe("c4.Spmd1B", {"pax_rows=true"}).config;
  for (const Template<BaseInput>& input : {exact.input, exact.eval_inputs.at("validation")})
    REQUIRE(input.as<FlatTokensInput::HParams>().labels == Labels::kOneSegment);
  const Template<BaseInput> shards = input_of({"pax_rows=true", "data=shards"});
  REQUIRE(shards.as<StreamingTextInput::HParams>().labels == Labels::kOneSegment);
  REQUIRE(shards.as<StreamingTextInput::HParams>().end_of_document == EndOfDocument::kNone);
}

TEST_CASE("MLPerf's rule for GPT-3 gives the rates and the steps of Pax's recipes") {
  struct Row {
    int64_t batch;
    double rate;
    int64_t warmup, end;
  };
  for (const Row& row :
       {Row{1536, 2e-5, 265, 108600}, Row{2048, 2e-5, 199, 81450}, Row{3072, 2e-5, 133, 54300},
        Row{3584, 2e-5, 114, 46543}, Row{4096, 3e-5, 100, 40725}, Row{8192, 3e-5, 50, 20363}}) {
    INFO(row.batch);
    const MlperfGpt3Rule rule = mlperf_gpt3_rule(row.batch);
    REQUIRE(rule.learning_rate == row.rate);
    REQUIRE(rule.warmup_steps == row.warmup);
    REQUIRE(rule.decay_end == row.end);
  }
  for (const int64_t batch : {0, 8193})
    REQUIRE_THAT(
        error_of([&] { mlperf_gpt3_rule(batch); }),
        Catch::Contains(fmt::format("batches of 1 to 8192 sequences, got {}; set", batch)));
}

TEST_CASE("GPT-3 recipes for MLPerf follow the rule with the batch, unless a number is set") {
  const auto require_schedule = [](const ConfiguredExperiment& configured, double rate,
                                   int64_t warmup, int64_t end) {
    const auto& adam = task_of(configured).learner.optimizer_tpl.as<Adam::HParams>();
    const auto& schedule = adam.schedule_tpl.as<LinearRampupCosineDecay::HParams>();
    REQUIRE(adam.learning_rate == rate);
    REQUIRE(schedule.warmup_steps == warmup);
    REQUIRE(schedule.decay_start == warmup + 1);
    REQUIRE(schedule.decay_end == end);
    REQUIRE(schedule.min_ratio == 0.1);
  };
  require_schedule(recipe("c4.SpmdPipelineGpt3MLPerfBS1p5k"), 2e-5, 265, 108600);
  require_schedule(recipe("c4.SpmdPipelineGpt3MLPerfBS2k"), 2e-5, 199, 81450);
  require_schedule(recipe("c4.SpmdPipelineGpt3MLPerfBS3k"), 2e-5, 133, 54300);
  require_schedule(recipe("c4.SpmdPipelineGpt3MLPerfBS4k"), 3e-5, 100, 40725);
  require_schedule(recipe("c4.SpmdPipelineGpt3MLPerfBS8k"), 3e-5, 50, 20363);
  require_schedule(
      recipe("c4.SpmdPipelineGpt3MLPerfBS4k", {"percore_batch_size=2", "warmup_steps=7"}), 2e-5, 7,
      81450);
  // The paper's numbers.
  require_schedule(recipe("c4.SpmdPipelineGpt3OrgHPBS1p5k"), 6e-5, 265, 108600);
}

TEST_CASE("GPT-3 recipes stop at MLPerf's target, and have GPT-3's layers") {
  const ConfiguredExperiment configured = recipe("c4.SpmdGpt3OrgHPBS1p5k");
  const EarlyStopping& stopping = task_of(configured).train.early_stopping;
  REQUIRE(stopping.metric == "eval/validation/log_pplx");
  REQUIRE(stopping.stop_at_target);
  REQUIRE(stopping.target == 2.69);
  const auto& lm = task_of(configured).model.as<LanguageModel::HParams>().lm_tpl;
  const auto& p = lm.as<TransformerLm::HParams>();
  const auto& softmax = p.softmax_tpl.as<SharedEmbeddingSoftmax::HParams>();
  REQUIRE_FALSE(softmax.use_bias);
  REQUIRE_FALSE(softmax.scale_sqrt_depth);
  REQUIRE(softmax.loss.soft_cap == 0.0);
  REQUIRE(p.position_emb_tpl.as<TrainablePositionalEmbedding::HParams>().max_seq_length.get() ==
          16384);
  REQUIRE(p.params_init.get() == WeightInit{InitKind::kGaussian, 0.006});
  const auto& block =
      p.stacked_transformer_tpl.as<Repeated::HParams>().block_tpl.as<TransformerBlock::HParams>();
  const auto& attention = block.attention_tpl.as<DotProductAttention::HParams>();
  REQUIRE(attention.use_bias);
  REQUIRE_FALSE(attention.use_per_dim_scale);
  REQUIRE(attention.logit_cap == 0.0);
}

TEST_CASE("batches and microbatches of Pax's recipes are those of Pax") {
  struct Row {
    std::string name;
    int64_t batch, microbatches;
  };
  for (const Row& row :
       {Row{"c4.SpmdPipelineGpt3MLPerfBS1p5k", 1536, 192}, Row{"c4.SpmdGpt3L16", 192, 1},
        Row{"c4.SpmdPipelineGpt3MLPerfBS2k", 2048, 256}, Row{"c4.SpmdPipelineGpt3Small", 512, 64},
        Row{"c4_multislice.Spmd22B4xv4_128", 4096, 1},
        Row{"c4_multislice.SpmdGpt3DataParallel2x16x16", 256, 1},
        Row{"lm_cloud.SpmdPipeline175B", 96, 48}, Row{"lm_cloud.SpmdPipeline9B", 512, 128},
        Row{"lm_cloud.SpmdPipelineMultislice2BCircular", 128, 16},
        Row{"lm_cloud.Spmd1024B", 4096, 1}}) {
    INFO(row.name);
    std::vector<std::string> sets;
    if (row.name.starts_with("c4")) sets.push_back("data=synthetic");
    const ConfiguredExperiment configured = recipe(row.name, sets);
    REQUIRE(configured.config.input.as<SyntheticInput::HParams>().global_batch_size.get() ==
            row.batch);
    REQUIRE(task_of(configured).train.num_microbatches == row.microbatches);
  }
  const ConfiguredExperiment circular = recipe("lm_cloud.SpmdPipelineMultislice2BCircular");
  REQUIRE(task_of(circular).train.pipeline_schedule.as<CircularPipeline::HParams>().chunks == 3);
}

TEST_CASE("a fractional batch per device must give whole sequences, and microbatches divide it") {
  const auto error = [](const std::vector<std::string>& sets) {
    return error_of([&] { recipe("lm_cloud.SpmdPipeline175B", sets); });
  };
  REQUIRE_THAT(error({"percore_batch_size=0.3"}),
               Catch::Contains("percore_batch_size=0.3 on 128 devices gives a batch of 38.4 "
                               "sequences, expected a whole number of at least 1; change it, or "
                               "set global_batch_size"));
  REQUIRE_THAT(error({"percore_batch_size=0.001"}), Catch::Contains("gives a batch of 0.128"));
  REQUIRE_THAT(error({"microbatch_size=5"}),
               Catch::Contains("microbatch_size=5 does not divide the global batch of 96 "));
  REQUIRE_THAT(error({"dims_per_head=100"}),
               Catch::Contains("dims_per_head=100 does not divide model_dims=12288"));
}

}  // namespace
}  // namespace tessera
