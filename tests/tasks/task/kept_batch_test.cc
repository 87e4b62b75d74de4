// SPDX-License-Identifier: Apache-2.0
// Steps leave their batch as it is, in the host's arrays and where the device reads it: a batch may
// be used again.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "inputs/token_row.h"
#include "layers/models/language_model.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/session/step_programs.h"
#include "tasks/task/learner/optimizers.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/hosts.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 4, kRowLength = 16;

// Dropout everywhere, smoothed labels and a z-loss. Weights stay as they are.
SingleTask::HParams masking_task(int64_t microbatches) {
  const TransformerBlock::HParams block{
      .attention_tpl = DotProductAttention::HParams{.dropout_rate = 0.1},
      .ffn_tpl = FeedForward::HParams{.dropout_rate = 0.1},
      .residual_dropout_rate = 0.1};
  const TransformerLm::HParams lm{
      .vocab_size = 24,
      .model_dims = 16,
      .num_layers = 2,
      .num_heads = 2,
      .hidden_dims = 32,
      .softmax_tpl =
          SharedEmbeddingSoftmax::HParams{.loss = {.label_smoothing = 0.1, .z_loss = 0.1}},
      .stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block},
      .embedding_dropout_rate = 0.1,
      .params_init = WeightInit{InitKind::kGaussian, 0.1}};
  return {.model = LanguageModel::HParams{.lm_tpl = lm},
          .learner = {.optimizer_tpl = Sgd::HParams{.learning_rate = 0.0}},
          .train = {.num_microbatches = microbatches}};
}

// Rows of documents of five tokens, padded at the end, with unequal weights.
Batch masked_batch() {
  Batch batch = make_token_batch(kRows, kRowLength);
  for (int64_t row = 0; row < kRows; ++row) {
    std::vector<uint32_t> tokens;
    for (int64_t i = 0; i < kRowLength - 3 * row; ++i)
      tokens.push_back(encode_token(static_cast<int32_t>(1 + (7 * i + row) % 20), i % 5 == 0));
    const TokenRow arrays = token_row(batch, row);
    fill_row(RowLayout(Labels::kShiftRight), tokens, arrays);
    arrays.weights[2] = 0.5f;
  }
  return batch;
}

// A training and an evaluation program on one device.
class MaskedSteps {
 public:
  MaskedSteps(const SingleTask::HParams& p, const Batch& batch)
      : task_(p), device_(make_test_device(1)), executor_(*device_) {
    const TraceSetting setting{Mesh::standard({1, 1, 1}), make_rules({}), batch};
    const CompileOptions options{.mesh = setting.mesh};
    const int train = executor_.add_program(task_.train_graph(setting), options);
    const int eval = executor_.add_program(task_.eval_graph(setting, Weights::kTrained), options);
    executor_.allocate();
    initialise_state(executor_, task_.model().parameters(), 1234, 1);
    train_ = std::make_unique<TrainProgram>(executor_, train, task_);
    eval_ = std::make_unique<EvalProgram>(executor_, eval);
    eval_number_ = eval;
  }

  // The loss, the norm of gradients and the metrics of a step, which must leave the batch alone.
  std::map<std::string, double> train(const Batch& batch, int64_t step) {
    const Batch before = batch;
    const StepResult result = train_->run(batch, step);
    require_unchanged(train_->program(), batch, before);
    std::map<std::string, double> values = result.metrics;
    values["loss"] = result.loss;
    values["grad_norm"] = result.grad_norm;
    return values;
  }
  std::map<std::string, double> evaluate(const Batch& batch) {
    const Batch before = batch;
    const ScoredBatch scored = eval_->run(batch);
    require_unchanged(eval_number_, batch, before);
    return scored.totals.means();
  }

 private:
  void require_unchanged(int program, const Batch& batch, const Batch& before) const {
    REQUIRE(same_batch(batch, before));
    const std::vector<Placement>& inputs = executor_.plan(program).inputs;
    const auto weight = std::ranges::find(inputs, InputKind::kParameter, &Placement::kind);
    const DeviceBuffer memory = executor_.shards_to_read(weight->name).at(0).memory;
    int fields = 0;
    for (const Placement& input : inputs) {
      if (input.kind != InputKind::kBatch) continue;
      INFO(input.name);
      const HostArray& array = before.at(input.name.substr(names::kBatchPrefix.size()));
      const DeviceBuffer read{memory.device, memory.address + (input.offset - weight->offset),
                              std::ssize(array.bytes)};
      bool is_equal = false;
      read.map(HostAccess::kRead, [&](std::span<std::byte> bytes) {
        is_equal = std::ranges::equal(bytes, array.bytes);
      });
      REQUIRE(is_equal);
      ++fields;
    }
    REQUIRE(fields >= 5);  // Ids, labels, weights, segments and positions in them.
  }

  SingleTask task_;
  std::unique_ptr<Device> device_;
  Executor executor_;
  std::unique_ptr<TrainProgram> train_;
  std::unique_ptr<EvalProgram> eval_;
  int eval_number_ = 0;
};

TEST_CASE("training and evaluation steps leave a batch as it is, and may use it again") {
  const Batch batch = masked_batch();
  for (const int64_t microbatches : {1, 2, 4}) {
    CAPTURE(microbatches);
    MaskedSteps steps(masking_task(microbatches), batch);
    const auto trained = steps.train(batch, 3), evaluated = steps.evaluate(batch);
    REQUIRE(steps.train(batch, 3) == trained);
    REQUIRE(steps.evaluate(batch) == evaluated);
    // Masks count: those of dropout differ by step, and each field of the batch changes the loss.
    REQUIRE(steps.train(batch, 4).at("loss") != trained.at("loss"));
    for (const char* name : {"ids", "labels", "segment_ids", "weights"}) {
      CAPTURE(name);
      Batch other = batch;
      if (name == std::string("weights"))
        other.at(name).data<float>()[1] = 0.0f;
      else
        other.at(name).data<int32_t>()[1] += 1;
      REQUIRE(steps.train(other, 3).at("loss") != trained.at("loss"));
      REQUIRE(steps.evaluate(other).at("loss") != evaluated.at("loss"));
    }
  }
}

}  // namespace
}  // namespace tessera
