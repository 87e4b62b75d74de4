// SPDX-License-Identifier: Apache-2.0
// A model whose layers are split over stages has one device's numbers, by each schedule: initial
// weights, first loss, gradients and loss curve, in the executor on CPU devices.
#include <string>
#include <vector>

#include "tasks/task/config/experiment.h"
#include "tasks/task/pipeline_schedules.h"
#include "tests/support/catch.h"
#include "tests/support/spmd_trial.h"

namespace tessera {
namespace {

using enum TrialModel;

TrialRules rules_of(Strategy strategy) {
  const RulesConfig rules = strategy_rules(strategy);
  return {std::string(enum_name(strategy)), rules.weights, rules.activations};
}

TrialRules with_layers_over_stages(TrialRules rules) {
  rules.weights = "layers -> stage" + (rules.weights.empty() ? "" : ", " + rules.weights);
  return rules;
}

const TrialRules kStages = rules_of(Strategy::kPipeline);
const TrialRules kFsdp = rules_of(Strategy::kFullyShardedPipeline);
const TrialRules kTensor = rules_of(Strategy::kTensorPipeline);
const TrialRules kFsdpAndTensor = rules_of(Strategy::kFullyShardedTensorPipeline);

using Schedule = Template<PipelineSchedule>;
const Schedule kGPipe = GPipe::HParams{};
const Schedule k1F1B = OneForwardOneBackward::HParams{};
const Schedule kInterleaved = InterleavedOneForwardOneBackward::HParams{.chunks = 2};
const Schedule kCircular = CircularPipeline::HParams{.chunks = 2};
const Schedule kZeroBubble = ZeroBubbleH1::HParams{};

struct Stages {
  int64_t stages, layers, microbatches;
  Schedule schedule = {};
  std::vector<int64_t> layers_per_piece = {};
};

struct StagedCase {
  SpmdCase trial;  // `ici` are the sizes of replica, data and mdl, within each stage.
  Stages split;

  SpmdCase in_stages() const {
    SpmdCase staged = trial;
    staged.repeated = true;
    staged.steps = 4;
    staged.stages = split.stages;
    staged.layers = split.layers;
    staged.microbatches = split.microbatches;
    staged.schedule = split.schedule;
    staged.layers_per_piece = split.layers_per_piece;
    return staged;
  }
};

void require_same(const std::vector<StagedCase>& trials) {
  for (const StagedCase& trial : trials) require_same_numbers(trial.in_stages());
}

TEST_CASE("two stages have one device's numbers, by each schedule") {
  require_same({{{.model = kGpt2, .own_rules = kStages}, {2, 2, 4, kGPipe}},
                {{.model = kLlama, .ici = {1, 2, 1}, .own_rules = kFsdp, .remat = "save_nothing"},
                 {2, 4, 4, k1F1B}},
                {{.model = kPax, .ici = {1, 1, 2}, .own_rules = kTensor, .dropout = true},
                 {2, 4, 4, kInterleaved}},
                {{.model = kGpt2, .ici = {2, 1, 1}, .own_rules = kStages, .dropout = true},
                 {2, 4, 2, kCircular}},
                {{.model = kLlama, .own_rules = kStages, .dropout = true, .clip_norm = 0.5},
                 {2, 2, 4, kZeroBubble}}});
}

TEST_CASE("four stages have one device's numbers, by each schedule") {
  require_same(
      {// Fewer microbatches than stages.
       {{.model = kLlama, .own_rules = kStages}, {4, 4, 2, kGPipe}},
       {{.model = kGpt2, .ici = {1, 2, 1}, .own_rules = kFsdp, .dropout = true}, {4, 8, 8}},
       {{.model = kPax,
         .ici = {1, 2, 1},
         .own_rules = kStages,
         .remat = "save_context_and_out_proj"},
        {4, 8, 4, kInterleaved}},
       {{.model = kLlama,
         .ici = {1, 1, 2},
         .own_rules = kTensor,
         .packed = false,
         .remat = "save_nothing"},
        {4, 8, 4, kCircular}},
       {{.model = kPax,
         .ici = {1, 2, 1},
         .own_rules = kFsdp,
         .dropout = true,
         .remat = "save_nothing"},
        {4, 4, 8, kZeroBubble}}});
}

TEST_CASE("stages with unequal numbers of layers have one device's numbers") {
  require_same({{{.model = kGpt2, .own_rules = kStages}, {2, 3, 4, k1F1B, {1, 2}}},
                {{.model = kLlama,
                  .ici = {1, 2, 1},
                  .own_rules = kFsdp,
                  .dropout = true,
                  .remat = "save_nothing"},
                 {2, 6, 4, kInterleaved, {2, 1, 2, 1}}},
                {{.model = kPax, .own_rules = kStages}, {4, 6, 8, kZeroBubble, {1, 2, 2, 1}}}});
}

TEST_CASE("stages beside other ways to split a model have one device's numbers") {
  require_same({{{.model = kGpt2, .ici = {1, 2, 2}, .own_rules = kFsdpAndTensor, .dropout = true},
                 {2, 4, 4, kZeroBubble}},
                {{.model = kLlama,
                  .ici = {1, 1, 2},
                  .own_rules = with_layers_over_stages(strategy("sequence"))},
                 {4, 4, 4}},
                {{.model = kPax,
                  .ici = {1, 1, 2},
                  .own_rules = with_layers_over_stages(strategy("ring")),
                  .chunk_tokens = 24},
                 {2, 4, 4, kCircular}},
                // One microbatch goes through all stages.
                {{.model = kLlama,
                  .ici = {2, 1, 1},
                  .own_rules = with_layers_over_stages(strategy("fsdp over replicas"))},
                 {2, 4, 1, k1F1B}}});
}

// The gradients of both uses of the table are gathered, or padded to divide over the devices,
// after they are added up; and a backward pass reads only weights that the forward pass gathered.
TEST_CASE(
    "tables and weights that stages use otherwise than they store them give the same numbers") {
  const TrialRules whole_table{"whole table", "layers -> stage",
                               "vocab -> mdl, batch -> (replica, data)"};
  const TrialRules split_width{"split width", "layers -> stage, embed -> (mdl, replica)",
                               "seq -> data, residual: seq -> mdl, mlp -> mdl, vocab -> mdl, "
                               "batch -> replica"};
  const TrialRules by_replicas{"by replicas", "layers -> stage, embed -> replica",
                               "batch -> replica"};
  require_same(
      {{{.model = kGpt2, .ici = {1, 1, 2}, .own_rules = whole_table}, {2, 2, 2, k1F1B}},
       {{.model = kGpt2,
         .ici = {1, 2, 1},
         .dcn = {2, 1, 1},
         .own_rules = split_width,
         .chunk_tokens = 45},
        {2, 4, 4, kInterleaved}},
       {{.model = kLlama, .ici = {2, 1, 1}, .own_rules = by_replicas}, {2, 2, 4, kZeroBubble}}});
}

TEST_CASE("a mixture of experts in stages has one device's numbers") {
  const TopKRouter::HParams dropless{.load_balance_weight = 0.1, .z_loss_weight = 0.01};
  const TopKRouter::HParams slots{.capacity_factor = 1.0, .load_balance_weight = 0.1};
  const TopKRouter::HParams balanced{.load_balance_weight = 0.0, .bias_rate = 0.01};
  const TrialRules experts{"experts", "layers -> stage, experts -> data",
                           "experts -> data, batch -> (replica, data)"};
  require_same(
      {{{.model = kLlama, .ici = {1, 2, 1}, .own_rules = experts, .router = slots}, {2, 2, 4}},
       {{.model = kLlama,
         .ici = {1, 2, 1},
         .own_rules = experts,
         .router = dropless,
         .remat = "save_nothing"},
        {2, 4, 4, kInterleaved}},
       {{.model = kLlama, .own_rules = kStages, .router = balanced}, {4, 4, 4, kZeroBubble}}});
}

TEST_CASE("a hand-written schedule gives one device's numbers") {
  require_same(
      {{{.model = kGpt2, .own_rules = kStages},
        {2, 2, 2,
         WrittenPipeline::HParams{.stages = {"F1 F0 . B1 . I0 . W0", " . F1 B1 F0 I0 . W0 ."}}}}});
}

TEST_CASE("stages that compute in bf16 are as close to f32 as one device") {
  for (const StagedCase& trial : std::vector<StagedCase>{
           {{.model = kGpt2, .own_rules = kStages}, {4, 4, 4, k1F1B}},
           {{.model = kLlama, .ici = {1, 2, 1}, .own_rules = kFsdp, .remat = "save_nothing"},
            {2, 4, 4, kZeroBubble}},
           {{.model = kPax, .ici = {1, 1, 2}, .own_rules = kTensor}, {2, 4, 4, kInterleaved}}})
    require_near_in_bf16(trial.in_stages());
}

TEST_CASE("stages give the same bits in a second run") {
  const SpmdCase trial{.model = kGpt2,
                       .ici = {1, 2, 1},
                       .own_rules = kFsdp,
                       .repeated = true,
                       .dropout = true,
                       .microbatches = 4,
                       .layers = 4,
                       .stages = 2,
                       .schedule = kZeroBubble,
                       .steps = 3};
  const SpmdRun first = run_spmd(trial), second = run_spmd(trial);
  REQUIRE(first.losses == second.losses);
  REQUIRE(first.norms == second.norms);
  REQUIRE(same_bits(first.trained, second.trained));
}

TEST_CASE("fifty steps in two and four stages, by each schedule", "[full][levels]") {
  const std::vector<std::string> policies = {"save_everything", "save_nothing",
                                             "save_context_and_out_proj"};
  size_t number = 0;
  // Without Pax's model: in eight layers with ReLU rounding can move a unit across zero, which
  // changes gradients by 1e-3, on meshes without stages too.
  for (const Schedule& schedule : {kGPipe, k1F1B, kInterleaved, kCircular, kZeroBubble})
    for (const int64_t stages : {2, 4})
      for (const TrialRules& rules : {kStages, kFsdp, kTensor, kFsdpAndTensor}) {
        const bool is_tensor = rules.weights.find("mdl") != std::string::npos;
        require_same_numbers({.model = number % 2 == 0 ? kGpt2 : kLlama,
                              .ici = {1, stages == 2 || !is_tensor ? 2 : 1, is_tensor ? 2 : 1},
                              .own_rules = rules,
                              .repeated = true,
                              .packed = number % 5 != 0,
                              .dropout = number / 3 % 2 == 0,
                              .remat = policies[number / 2 % policies.size()],
                              .microbatches = number % 4 == 3 ? 8 : 4,
                              .layers = 8,
                              .stages = stages,
                              .schedule = schedule,
                              .steps = 50});
        ++number;
      }
}

}  // namespace
}  // namespace tessera
