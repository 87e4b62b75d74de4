// SPDX-License-Identifier: Apache-2.0
#include "layers/models/base_model.h"

#include <ranges>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/plugin_call.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// Returns the sum of all losses. Those of unrolled layers are stacked and added like those of a
// loop, so that both give the same bits.
Tensor sum_of(const std::map<std::string, Tensor>& losses) {
  std::map<std::string, std::map<int64_t, Tensor>> layers;  // By name without the layer's index.
  for (const auto& [name, loss] : losses) {
    const StreamPath place = stream_path(name);
    const bool is_unrolled = place.layer >= 0;
    const Axis one{std::string(kLayersAxis), 1, {}};
    layers[place.path][place.layer] = is_unrolled ? broadcast(loss, {one}) : loss;
  }
  Tensor total;
  for (const auto& [name, by_layer] : layers) {
    std::vector<Tensor> parts;
    for (const auto& [index, loss] : by_layer) parts.push_back(loss);
    Tensor sum = parts.size() > 1 ? concat(parts, kLayersAxis) : parts.front();
    if (sum.type().rank() > 0) sum = reduce_sum(sum);
    total = total.valid() ? total + sum : sum;
  }
  return total;
}

// Adds auxiliary losses with the weight of the model's loss, so that sums over microbatches and
// batches are means weighted by tokens. Evaluation leaves them out: it does not optimise, and its
// loss is a mean over examples, in whatever batches they come.
void add_losses(const std::map<std::string, Tensor>& losses, Mode mode, ModelOutput* output) {
  if (losses.empty()) return;
  const Tensor weight = reduced(output->loss.weight);
  for (const auto& [name, loss] : losses) output->metrics[name] = {loss * weight, weight};
  const Tensor weighted = sum_of(losses) * weight;
  output->metrics[std::string(kAuxLoss)] = {weighted, weight};
  if (mode == Mode::kTrain) output->loss = {reduced(output->loss.sum) + weighted, weight};
}

// Returns the sum of the means of metrics times their factors, times the weight of the loss. `own`
// is the loss without auxiliary ones.
Metric combined_loss(const std::map<std::string, double>& factors, const Metric& own,
                     const ModelOutput& output) {
  std::map<std::string, Metric> metrics = output.metrics;
  metrics["loss"] = own;
  const Tensor weight = reduced(output.loss.weight);
  Tensor total;
  for (const auto& [name, factor] : factors) {
    const auto found = metrics.find(name);
    if (found == metrics.end()) {
      const auto keys = std::views::keys(metrics);
      fail("losses: the model has no metric '{}'{} (it has: {})", name,
           did_you_mean(name, {keys.begin(), keys.end()}), fmt::join(keys, ", "));
    }
    const Metric& metric = found->second;
    Tensor term = reduced(metric.sum);
    if (metric.weight.id() != own.weight.id() && metric.weight.id() != output.loss.weight.id()) {
      if (trace_state().examples.first)
        fail(
            "losses: '{}' is not a mean with the weight of the model's loss, so it is known only "
            "after all microbatches; set task.train.num_microbatches=1, without a pipeline and "
            "numerics=mesh_invariant, or give the metric that weight",
            name);
      term = term / reduced(metric.weight) * weight;
    }
    term = scale(term.type().rank() > 0 ? reduce_sum(term) : term, factor);
    total = total.valid() ? total + term : term;
  }
  return {total, weight};
}

void check_output(const BaseModel& model, const ModelOutput& output) {
  const auto check = [&](const std::string& what, const Metric& metric, bool has_batch) {
    for (const Tensor& each : {metric.sum, metric.weight})
      if (!each.valid() || each.dtype() != DType::kF32 ||
          (has_batch ? !each.has("batch") : each.type().rank() != 0))
        fail_in(model, "fprop()", "{} is {}, expected f32 {}", what,
                each.valid() ? each.type().text() : "without a value",
                has_batch ? "with the axis 'batch'" : "scalars");
  };
  check("the loss", output.loss, false);
  for (const auto& [name, metric] : output.metrics)
    check(fmt::format("metric '{}'", name), metric, false);
  for (const auto& [name, terms] : output.terms)
    check(fmt::format("terms['{}']", name), terms, true);
  if (!output.terms.empty() && !output.terms.contains("loss"))
    fail_in(model, "fprop()", "terms lacks 'loss'; expected it, or no terms");
}

}  // namespace

ModelOutput weighted_output(const CrossEntropy& scores, Tensor weights) {
  if (!weights.valid()) weights = constant(1.0, DType::kF32, scores.loss.type().axes);
  const Tensor total = reduce_sum(weights).named("total_weight");
  ModelOutput output;
  const auto mean = [&](const char* name, Tensor values) {
    const Tensor weighted = values * weights;
    output.terms[name] = {weighted, weights};
    return Metric{reduce_sum(weighted), total};
  };
  output.loss = mean("loss", scores.loss);
  output.metrics["log_pplx"] = mean("log_pplx", neg(scores.log_likelihood));
  output.metrics["accuracy"] = mean("accuracy", scores.correct);
  return output;
}

ModelOutput BaseModel::operator()(const Features& features) const {
  const SummaryScope summaries;
  ModelOutput output = LayerOf::operator()(features);
  check_output(*this, output);
  summaries.check_names(output.metrics);
  output.metrics.insert(summaries.metrics().begin(), summaries.metrics().end());
  const Metric own = output.loss;
  add_losses(summaries.losses(), features.mode, &output);
  if (features.mode == Mode::kTrain && features.losses != nullptr && !features.losses->empty())
    output.loss = combined_loss(*features.losses, own, output);
  return output;
}

Tensor BaseModel::logits(const Features& features) const {
  const LayerScope scope(*this);
  const std::string_view function = "fprop_logits()";
  const Tensor logits =
      returned(function, calling(*this, function, [&] { return fprop_logits(features); }));
  if (!logits.has("batch") || !is_floating(logits.dtype()))
    fail_in(*this, function, "returned {}, expected f32 with the axis 'batch'",
            logits.type().text());
  return logits;
}

Tensor BaseModel::next_logits(const Features& features) const {
  const LayerScope scope(*this);
  const std::string_view function = "fprop_next_logits()";
  const Tensor logits =
      returned(function, calling(*this, function, [&] { return fprop_next_logits(features); }));
  if (logits.type().rank() != 2 || logits.type().axes[0].name != "batch" ||
      !is_floating(logits.dtype()))
    fail_in(*this, function, "returned {}, expected f32[\"batch vocab\"]", logits.type().text());
  return logits;
}

Tensor BaseModel::fprop_next_logits(const Features&) const {
  fail(
      "this model cannot decode token by token: it does not override fprop_next_logits, as "
      "LanguageModel does (layers/models/language_model.h), whose attention keeps keys and values "
      "in a cache");
}

}  // namespace tessera
