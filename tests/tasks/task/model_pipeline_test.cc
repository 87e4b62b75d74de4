// SPDX-License-Identifier: Apache-2.0
// Tests how a run divides its model over stages: requirements, refused configurations, and the
// table of each program.
#include "tasks/task/model_pipeline.h"

#include <memory>
#include <numeric>

#include "core/base/error.h"
#include "core/graph/type.h"
#include "core/schedules/table.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "tasks/task/pipeline_schedules.h"
#include "tests/support/catch.h"
#include "tests/support/spmd_case.h"

namespace tessera {
namespace {

const Mesh kFourStages({{"stage", 4}, {"replica", 1}, {"data", 2}, {"mdl", 1}});
const TrialRules kRules{"pipeline", "layers -> stage, embed -> data", "batch -> (replica, data)"};

// Eight layers in four stages and eight microbatches.
SpmdCase four_stages() {
  return {.model = TrialModel::kLlama,
          .ici = {1, 2, 1},
          .own_rules = kRules,
          .repeated = true,
          .microbatches = 8,
          .layers = 8,
          .stages = 4};
}

std::string error(const SpmdCase& trial) {
  return error_of([&] { spmd_pipeline(trial); });
}

TEST_CASE("without a schedule a pipeline is 1F1B with equal pieces") {
  const auto pipeline = spmd_pipeline(four_stages());
  REQUIRE(pipeline.has_value());
  REQUIRE(pipeline->table.name == "1F1B");
  REQUIRE(pipeline->table.stages == 4);
  REQUIRE(pipeline->table.microbatches == 8);
  REQUIRE(pipeline->layers_of_pieces == std::vector<int64_t>{2, 2, 2, 2});
  REQUIRE(four_stages().mesh() == kFourStages);  // Equal blocks need no pieces.
}

TEST_CASE(
    "a schedule with chunks has a piece for each, and unequal pieces are those that are given") {
  SpmdCase trial = four_stages();
  trial.schedule = CircularPipeline::HParams{.chunks = 2};
  REQUIRE(spmd_pipeline(trial)->layers_of_pieces == std::vector<int64_t>(8, 1));
  REQUIRE(trial.mesh().layer_pieces().chunks() == 2);
  trial.schedule = GPipe::HParams{};
  trial.layers_per_piece = {3, 2, 2, 1};
  REQUIRE(spmd_pipeline(trial)->layers_of_pieces == trial.layers_per_piece);
  REQUIRE(trial.mesh().layer_pieces_of(8).layers_of_stage(0) == 3);
}

TEST_CASE("one stage, or layers that no rule splits, are no pipeline") {
  SpmdCase trial = four_stages();
  trial.own_rules = TrialRules{"fsdp", "embed -> data", "batch -> (replica, data)"};
  REQUIRE(!spmd_pipeline(trial).has_value());
  // A configuration for many devices runs on one.
  const TrainHParams train{.pipeline_schedule = GPipe::HParams{}, .layers_per_piece = {2, 1}};
  const std::unique_ptr<BaseTask> task = Template<BaseTask>(spmd_task(trial)).instantiate();
  REQUIRE(!model_pipeline(train, task->model().parameters(), four_stages().axis_rules(),
                          Mesh({{"stage", 1}, {"data", 1}})));
}

TEST_CASE("a schedule needs stages, and a rule that splits layers over them") {
  SpmdCase trial = four_stages();
  trial.schedule = GPipe::HParams{};
  trial.own_rules->weights = "embed -> data";
  REQUIRE(
      error(trial) ==
      "task.train.pipeline_schedule is set and the mesh has stage=4, but rules.weights (\"embed "
      "-> data\") does not split layers over stages; add layers -> stage");
  trial.stages = 1;
  REQUIRE(error(trial) ==
          "task.train.pipeline_schedule is set, but the mesh (replica=1 data=2 mdl=1) has no axis "
          "'stage' for the stages of a pipeline; strategy=pipeline adds it and splits the layers "
          "over it");
  trial.schedule = {};
  trial.layers_per_piece = {8};
  REQUIRE_THAT(error(trial), Catch::StartsWith("task.train.layers_per_piece is set, but the mesh"));
}

TEST_CASE("a schedule is refused for numbers that it cannot have, with those that it can") {
  SpmdCase trial = four_stages();
  trial.microbatches = 1;
  REQUIRE_THAT(error(trial),
               Catch::Contains("task.train.num_microbatches is 1 and all stages but "
                               "one would always be idle; set it to 4 or more: with M "
                               "of them a stage is idle for 3 of M+3 parts of a step"));
  trial.schedule = GPipe::HParams{};
  REQUIRE(error(trial) == "no error");  // On purpose.
  trial.microbatches = 6;
  trial.schedule = InterleavedOneForwardOneBackward::HParams{};
  REQUIRE(error(trial) ==
          "interleaved 1F1B: got microbatches=6, expected a multiple of stages=4, such as 8 [in "
          "task.train.pipeline_schedule, with num_microbatches=6 on stage=4]");
  trial.microbatches = 2;
  trial.schedule = CircularPipeline::HParams{.chunks = 2};
  REQUIRE_THAT(error(trial),
               Catch::StartsWith("circular: got microbatches=2 for stages=4, expected "
                                 "at least as many; raise microbatches to 4"));
  trial.schedule =
      WrittenPipeline::HParams{.stages = {"F0 B0 F1 B1", ". F1 B1 F0 B0", "F0 F1 B0 B1",
                                          "F0 F1 B0 "
                                          "B1"}};
  REQUIRE_THAT(error(trial),
               Catch::Contains("the schedule never ends: stage 0 stops at B0 (tick 1) "
                               "until stage 1 has run B0 (tick 4)"));
}

TEST_CASE("layers that do not fit the pieces are refused") {
  SpmdCase trial = four_stages();
  trial.layers = 6;
  REQUIRE(error(trial) ==
          "6 layers cannot be divided into 4 equal pieces (stage=4); the nearest number is 8, or "
          "give the layers of each piece by task.train.layers_per_piece");
  trial.schedule = InterleavedOneForwardOneBackward::HParams{};
  REQUIRE_THAT(error(trial), Catch::StartsWith("6 layers cannot be divided into 8 equal pieces "
                                               "(stage=4 with 2 chunks each)"));
  trial.schedule = {};
  trial.layers_per_piece = {2, 2, 2};
  REQUIRE(error(trial) ==
          "[2,2,2] has 3 numbers, expected one for each of 4 pieces (stage=4), in the order of the "
          "model [in task.train.layers_per_piece]");
  trial.layers_per_piece = {2, 2, 2, 2};
  REQUIRE(error(trial) ==
          "[2,2,2,2] is 8 layers together, expected 6, those of the model [in "
          "task.train.layers_per_piece]");
  trial.layers_per_piece = {3, 2, 1, 0};
  REQUIRE(error(trial) == "SingleTask: train.layers_per_piece[3] is 0, expected 1 to 16777216");
}

std::optional<ModelPipeline> pipeline_of(const Template<SequenceLayer>& stack,
                                         const std::string& weights = "layers -> stage") {
  const LanguageModel::HParams p{.lm_tpl =
                                     TransformerLm::HParams{.vocab_size = 16,
                                                            .model_dims = 8,
                                                            .num_layers = 4,
                                                            .num_heads = 2,
                                                            .hidden_dims = 16,
                                                            .stacked_transformer_tpl = stack}};
  const std::unique_ptr<BaseModel> model = Template<BaseModel>(p).instantiate();
  return model_pipeline({.num_microbatches = 4}, model->parameters(), {parse_rules(weights), {}},
                        kFourStages);
}

TEST_CASE("a pipeline needs exactly one stack of layers") {
  REQUIRE(pipeline_of(Repeated::HParams{}).has_value());
  REQUIRE(
      error_of([] { pipeline_of(StackedTransformer::HParams{}); }) ==
      "rules.weights splits layers over stage=4, but the model has no stack of layers: no weight "
      "has the axis layers; use a Repeated in place of a StackedTransformer");
  const LayerSequence::HParams one{
      .layers_tpl = {StackedTransformer::HParams{.num_layers = 1}, Repeated::HParams{}}};
  REQUIRE(pipeline_of(one)->layers_of_pieces == std::vector<int64_t>{1, 1, 1, 1});
  const LayerSequence::HParams two{.layers_tpl = {Repeated::HParams{}, Repeated::HParams{}}};
  REQUIRE_THAT(error_of([&] { pipeline_of(two); }),
               Catch::StartsWith("rules.weights splits layers over stage=4, but the model has 2 "
                                 "stacks of layers (lm.transformer.part0.x_layers[], "
                                 "lm.transformer.part1.x_layers[]); a pipeline runs one"));
}

TEST_CASE("a layer's own rules cannot take its weights out of the stages, or put others in") {
  const auto with_rules = [](const std::string& rules) {
    FeedForward::HParams ffn;
    ffn.layer.rules.weights = rules;
    return Repeated::HParams{.block_tpl = TransformerBlock::HParams{.ffn_tpl = ffn}};
  };
  REQUIRE_THAT(
      error_of([&] { pipeline_of(with_rules("layers -> ()")); }),
      Catch::StartsWith("the weight is stored as f32[\"layers embed mlp\"], expected "
                        "layers/stage, as of all weights of the stack; its layer has rules "
                        "or a layout of its own [in lm.transformer.x_layers[].ffn."));
  REQUIRE_THAT(error_of([&] { pipeline_of(with_rules("mlp -> stage, layers -> ()")); }),
               Catch::Contains("expected layers/stage"));
}

TEST_CASE("a training step runs by the schedule, evaluation by its forwards, decoding by none") {
  SpmdCase trial = four_stages();
  trial.schedule = CircularPipeline::HParams{.chunks = 2};
  const ModelPipeline pipeline = *spmd_pipeline(trial);
  REQUIRE(pipeline_text(*table_for(pipeline, traced_step(trial))) == pipeline_text(pipeline.table));

  const std::unique_ptr<BaseTask> task = Template<BaseTask>(spmd_task(trial)).instantiate();
  const TraceSetting setting{trial.mesh(), trial.axis_rules(), spmd_batch(trial, 0)};
  const Graph scores = task->eval_graph(setting, Weights::kTrained);
  const PipelineTable forwards = *table_for(pipeline, scores);
  REQUIRE(forwards.microbatches == 8);
  REQUIRE(std::ssize(forwards.tasks) == 4 * 2 * 8);
  REQUIRE(!table_for(pipeline, task->logits_graph(setting, Weights::kTrained)));
  const DecodeSetting decode{.mesh = trial.mesh(),
                             .rules = trial.axis_rules(),
                             .batch = 4,
                             .cache_length = 8,
                             .keep_cast_weights = true};
  REQUIRE(!table_for(pipeline, task->decode_graph(decode, Weights::kTrained)));
  REQUIRE(remark_on_decoding(pipeline) ==
          "note: decoding does not run in stages: every device gathers the layers of all 4 stages; "
          "a mesh without stages decodes the same with less memory and traffic");
}

TEST_CASE("evaluation has as many microbatches as its batch can be divided into") {
  SpmdCase trial = four_stages();
  const ModelPipeline pipeline = *spmd_pipeline(trial);
  const std::unique_ptr<BaseTask> task = Template<BaseTask>(spmd_task(trial)).instantiate();
  const auto microbatches = [&](int64_t batch) {
    SpmdCase other = trial;
    other.sizes.batch = batch;
    const TraceSetting setting{trial.mesh(), trial.axis_rules(), spmd_batch(other, 0)};
    return table_for(pipeline, task->eval_graph(setting, Weights::kTrained))->microbatches;
  };
  // On two devices along `data`.
  REQUIRE(microbatches(16) == 8);
  REQUIRE(microbatches(32) == 8);
  REQUIRE(microbatches(12) == 6);
  REQUIRE(microbatches(20) == 5);
  REQUIRE(microbatches(22) == 1);
  REQUIRE(microbatches(2) == 1);
}

TEST_CASE("a weight on several stages is warned of, with the bytes of its gradient") {
  const Mesh mesh({{"stage", 4}, {"data", 2}});
  const Type table = parse_type("f32[\"vocab=64 embed/data=32\"]");
  const Type stack = parse_type("f32[\"layers/stage=4 embed=32\"]");
  const auto warnings = [&](const Buffer& buffer) {
    return warnings_of_shared_weights(std::vector{buffer}, mesh);
  };
  REQUIRE(warnings({"lm.softmax.w", InputKind::kParameter, table, {0, 3}}) ==
          std::vector<std::string>{"lm.softmax.w is on stages 0, 3, which add up its gradient in "
                                   "every step: 4096 bytes on each of their devices"});
  REQUIRE_THAT(warnings({"w", InputKind::kParameter, table, {}}).at(0),
               Catch::Contains("on stages 0, 1, 2, 3,"));
  REQUIRE(warnings({"w", InputKind::kParameter, table, {3}}).empty());
  REQUIRE(warnings({"w", InputKind::kParameter, stack, {}}).empty());
  REQUIRE(warnings({"learner/m/w", InputKind::kState, table, {0, 3}}).empty());
}

}  // namespace
}  // namespace tessera
