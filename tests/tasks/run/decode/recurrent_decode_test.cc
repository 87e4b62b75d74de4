// SPDX-License-Identifier: Apache-2.0
// Decoding of layers that are no attention: a layer with a linear recurrence keeps decoding state
// of its own, of several types, and decodes to what the whole forward pass computes, with padding
// on either side of a prompt. Also tests which layers the check refuses.
#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "core/devices/reference/interpreter.h"
#include "core/ops/associative_scan.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/order.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "tests/support/catch.h"
#include "tests/support/decode_trial.h"
#include "tests/support/layer_trial.h"
#include "tests/support/spmd_case.h"
#include "tests/support/trial.h"

namespace tessera {

// The state that a Recurrence declares to the decoding cache.
enum class StateKind { kWhole, kNone, kOtherDtype, kNoBatch };
constexpr std::array<EnumName<StateKind>, 4> enum_names(StateKind) {
  using enum StateKind;
  return {
      {{kWhole, "whole"}, {kNone, "none"}, {kOtherDtype, "other_dtype"}, {kNoBatch, "no_batch"}}};
}

// y = (h + c / n)·w with h_t = a_t·h_{t-1} + x_t, a_t = sigmoid(x_t·g); c is the sum of the tokens
// so far, by a causal mask within the new ones, and n their number. Rows are one document.
class Recurrence final : public SequenceLayer {
 public:
  struct HParams {
    using Instance = Recurrence;
    static constexpr std::string_view kName = "Recurrence";
    Required<int64_t> model_dims;
    StateKind state = StateKind::kWhole;
    LayerHParams layer;
    FIELDS(model_dims, state, layer)
  };
  explicit Recurrence(const HParams& p) : SequenceLayer(p.layer), state_(p.state) {
    const Axis embed{"embed", p.model_dims.get(), {}}, out{"out", p.model_dims.get(), {}};
    gate_ = weight("gate", {embed, out}, p.layer.init());
    output_ = weight("output", {embed, out}, p.layer.init());
  }

 private:
  Tensor fprop(Tensor x, const SequenceInfo&) const override {
    x = place(x);
    const Tensor is_token = FpropScope::current().token_mask(x);
    const Tensor one = constant(1.0, x.dtype());
    const Tensor input = mask(x, is_token);
    const Tensor gate = place(product(x, param(gate_), over("embed")));
    const Tensor decay = where(is_token, rename(sigmoid(gate), "out", "embed"), one);
    const std::vector<Tensor> scanned = associative_scan(
        [](const auto& a, const auto& b) -> std::vector<Tensor> {
          return {a[0] * b[0], b[0] * a[1] + b[1]};
        },
        {decay, input}, "seq");
    const Axis seq = x.type().axis("seq"), key{"key_seq", seq.size, {}};
    const Tensor lower = cast(causal_mask(seq, key), x.dtype());
    const Tensor sums =
        in_order_of(einsum(lower, rename(input, "seq", "key_seq"), over("key_seq")), x.type());
    const Tensor counts = cumulative_sum(
        where(is_token, constant(1.0, DType::kI32), constant(0.0, DType::kI32)), "seq");
    const Tensor y = with_earlier(scanned, sums, counts);
    return place(rename(product(y, param(output_), over("embed")), "out", "embed"), "residual");
  }

  Tensor with_earlier(const std::vector<Tensor>& scanned, Tensor sums, Tensor counts) const {
    Tensor h = scanned[1];
    DecodeCache* const cache = FpropScope::current().cache();
    if (cache != nullptr && state_ != StateKind::kNone) {
      Type row = h.type();
      row.axes.erase(row.axes.begin() + row.find("seq"));
      const auto add = [&](std::string_view name, Type type, Tensor& all, const auto& added) {
        if (state_ == StateKind::kNoBatch) type.axes.erase(type.axes.begin());
        cache->updated(name, type, [&](const Tensor& earlier) {
          all = all + added(earlier);
          const Tensor last = unbind(all, "seq").back();
          return state_ == StateKind::kOtherDtype ? cast(last, DType::kBF16) : last;
        });
      };
      add("h", row, h, [&](const Tensor& earlier) { return scanned[0] * earlier; });
      add("sum", row, sums, [](const Tensor& earlier) { return earlier; });
      add("count", make_type(DType::kI32, {row.axes[0]}), counts,
          [](const Tensor& earlier) { return earlier; });
    }
    const Tensor number = maximum(cast(counts, h.dtype()), constant(1.0, h.dtype()));
    return h + sums / number;
  }

  StateKind state_;
  Weight gate_, output_;
};
const TemplateRegistrar<SequenceLayer, Recurrence> kRecurrence;

namespace {

constexpr int64_t kLength = 12;

SpmdCase case_of(bool repeated, std::vector<int64_t> ici = {1, 1, 1}) {
  return {
      .model = TrialModel::kLlama, .ici = std::move(ici), .strategy = "fsdp", .repeated = repeated};
}

std::unique_ptr<BaseTask> task_of(const SpmdCase& trial, StateKind state = StateKind::kWhole) {
  SingleTask::HParams task = spmd_task(trial);
  Template<SequenceLayer>& stack = task.model.as<LanguageModel::HParams>()
                                       .lm_tpl.as<TransformerLm::HParams>()
                                       .stacked_transformer_tpl;
  Template<SequenceLayer>& block = trial.repeated
                                       ? stack.as<Repeated::HParams>().block_tpl
                                       : stack.as<StackedTransformer::HParams>().block_tpl;
  block.as<TransformerBlock::HParams>().attention_tpl = Recurrence::HParams{.state = state};
  return Template<BaseTask>(task).instantiate();
}

DecodeSetting setting_of(const SpmdCase& trial, int64_t batch, int64_t seq = 1) {
  return {.mesh = trial.mesh(),
          .rules = trial.axis_rules(),
          .batch = batch,
          .seq = seq,
          .cache_length = kLength};
}

TokenRows random_rows(size_t count) {
  std::mt19937 random(7);
  TokenRows rows(count);
  for (auto& row : rows)
    for (int64_t i = 0; i < kLength; ++i) row.push_back(static_cast<int32_t>(random() % 64));
  return rows;
}

// The tokens of `row` that follow those that it has, at most `count` and up to `end`.
std::vector<int32_t> next(const std::vector<int32_t>& row, int64_t has, int64_t count,
                          int64_t end = kLength) {
  return {row.begin() + has, row.begin() + std::max(has, std::min(has + count, end))};
}

void require_near(const std::vector<float>& got, const std::vector<float>& all, int64_t position) {
  for (size_t i = 0; i < got.size(); ++i)
    REQUIRE(got[i] ==
            Approx(all[static_cast<size_t>(position) * got.size() + i]).epsilon(1e-4).margin(1e-4));
}

TEST_CASE("a recurrence decodes to the logits of its whole forward pass") {
  const bool repeated = GENERATE(false, true);
  const int64_t chunk = GENERATE(3, 5);
  const std::vector<int64_t> ici =
      GENERATE(std::vector<int64_t>{1, 1, 1}, std::vector<int64_t>{1, 2, 1});
  const SpmdCase trial = case_of(repeated, ici);
  const auto task = task_of(trial);
  constexpr size_t kRows = 4;
  const TokenRows rows = random_rows(kRows);
  const auto expected = whole_logits(*task_of(trial.on_one_device()), kLength, rows);
  DecodeTrial decoder(*task, setting_of(trial, kRows), {1, chunk});
  // Twice: the second time the state of the first must not count.
  for (int run = 0; run < 2; ++run) {
    decoder.forget();
    const auto take = [&](int64_t count, int64_t by, const std::vector<int64_t>& ends) {
      for (;;) {
        TokenRows tokens;
        bool any = false;
        for (size_t row = 0; row < kRows; ++row) {
          tokens.push_back(next(rows[row], decoder.length(row), by, ends[row]));
          any = any || !tokens[row].empty();
        }
        if (!any) return;
        const auto logits = decoder.take(count, tokens);
        for (size_t row = 0; row < kRows; ++row)
          if (!tokens[row].empty())
            require_near(logits[row], expected[row], decoder.length(row) - 1);
      }
    };
    take(chunk, chunk, {1, 4, 9, 6});  // Prompts; shorter ones idle while longer ones are read.
    take(1, 1, {5, 4, 11, 12});        // Rows that end earlier idle, and go on later.
    take(1, 1, std::vector<int64_t>(kRows, kLength));
  }
}

TEST_CASE("beam search permutes the state of a recurrence") {
  const bool repeated = GENERATE(false, true);
  const SpmdCase trial = case_of(repeated, {1, repeated ? 2 : 1, 1});
  const auto task = task_of(trial);
  const TokenRows rows = random_rows(4);
  const auto expected = whole_logits(*task_of(trial.on_one_device()), kLength, rows);
  DecodeSetting setting = setting_of(trial, 4);
  setting.rows_per_prompt = 2;
  DecodeTrial decoder(*task, setting, {1, 5});
  decoder.take(5, {next(rows[0], 0, 5), next(rows[1], 0, 3), {}, next(rows[3], 0, 4)});
  decoder.reorder({1, 0, 1, 1});
  const auto logits = decoder.take(
      1, {next(rows[1], 3, 1), next(rows[0], 5, 1), next(rows[3], 4, 1), next(rows[3], 4, 1)});
  require_near(logits[0], expected[1], 3);
  require_near(logits[1], expected[0], 5);
  require_near(logits[2], expected[3], 4);
  require_near(logits[3], expected[3], 4);
}

std::vector<double> logits_of(const BaseTask& task, const ReferenceInputs& weights,
                              const std::vector<double>& ids, ReferenceInputs& state, double start,
                              double last) {
  const Graph graph = task.decode_graph(
      {.batch = 1, .seq = std::ssize(ids), .cache_length = kLength}, Weights::kTrained);
  ReferenceInputs inputs = weights;
  inputs["batch/ids"] = ids;
  inputs["batch/starts"] = {start};
  inputs["batch/last"] = {last};
  inputs["batch/tokens"] = {start + last + 1.0};
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind != InputKind::kState) continue;
    // What memory holds before the first token does not count.
    inputs[input.name] =
        state.contains(input.name)
            ? state[input.name]
            : std::vector<double>(static_cast<size_t>(graph.type(input.value).elements()),
                                  std::nan(""));
  }
  const auto outputs = evaluate(graph, inputs);
  for (const auto& [name, array] : outputs)
    if (name != "logits") state[name] = array.values;
  return outputs.at("logits").values;
}

TEST_CASE("padding before, behind or between the tokens of a prompt does not count") {
  const bool repeated = GENERATE(false, true);
  const auto task = task_of(case_of(repeated));
  ReferenceInputs weights;
  for (const Parameter& each : task->model().parameters().parameters())
    weights[each.path] = initial_values(each);
  ReferenceInputs plain, left, right;
  const auto expected = logits_of(*task, weights, {3, 14, 15, 9}, plain, 0, 3);
  require_close(logits_of(*task, weights, {60, 61, 3, 14, 15, 9}, left, -2, 5), expected);
  require_close(logits_of(*task, weights, {3, 14, 15, 9, 62, 63}, right, 0, 3), expected);
  const auto after = logits_of(*task, weights, {26}, plain, 4, 0);
  require_close(logits_of(*task, weights, {26}, left, 4, 0), after);
  require_close(logits_of(*task, weights, {26, 5}, right, 4, 0), after);
  // A row without new tokens keeps its state, wherever it would begin.
  const ReferenceInputs before = plain;
  logits_of(*task, weights, {26}, plain, 0, -1);
  REQUIRE(plain == before);
}

TEST_CASE("a whole batch says by its segment ids which tokens are padding") {
  const auto result = [](const std::string& sizes, const std::vector<double>& x,
                         const std::vector<double>& segments) {
    LayerTrial trial;
    trial.feature("segment_ids", "i32[\"" + sizes + "\"]", segments);
    const Tensor operand = trial.in("x", "f32[\"" + sizes + " embed=2\"]", x);
    return trial
        .run(Template<SequenceLayer>(Recurrence::HParams{.model_dims = 2}), {},
             [&](const SequenceLayer& layer) { return layer(operand, {}); })
        .values;
  };
  const auto alone = result("batch=1 seq=2", {1, 2, 3, 4}, {1, 1});
  const auto padded = result("batch=1 seq=4", {9, 9, 1, 2, 3, 4, 8, 8}, {0, 1, 1, 0});
  require_close({padded.begin() + 2, padded.begin() + 6}, alone);
}

TEST_CASE("decoding state is refused where it cannot work") {
  using Catch::Contains;
  const SpmdCase trial = case_of(true);
  const auto refusal = [&](StateKind state) {
    return error_of(
        [&] { task_of(trial, state)->decode_graph(setting_of(trial, 2), Weights::kTrained); });
  };
  REQUIRE_THAT(refusal(StateKind::kNone),
               Contains("causal_mask sees the new tokens only, and its layer keeps no decoding") &&
                   Contains("recurrent_decode_test.cc"));
  REQUIRE_THAT(refusal(StateKind::kOtherDtype),
               Contains("the decoding state 'h' is f32") && Contains("its update returns bf16"));
  REQUIRE_THAT(refusal(StateKind::kNoBatch), Contains("expected the axis batch first"));
}

}  // namespace
}  // namespace tessera
