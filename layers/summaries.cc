// SPDX-License-Identifier: Apache-2.0
#include "layers/summaries.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

thread_local SummaryScope* innermost = nullptr;
thread_local bool records_activations = false;

constexpr std::string_view kStack = "[]";

// Members of the lines of metrics.jsonl (docs/formats.md) that are not metrics of a model, and
// metrics that evaluation derives.
constexpr std::string_view kReserved[] = {
    "step",      "event",   "loss",           kAuxLoss,    "learning_rate",
    "grad_norm", "tokens",  "tokens_per_sec", "step_time", "input_wait",
    "mfu",       "skipped", "perplexity",     "weight",    "bits_per_byte"};
// And those of a window of steps.
constexpr std::string_view kReservedSuffix = "_deviations";
constexpr std::string_view kReservedPrefix = "macro_";

void check_name(std::string_view name, bool is_reported) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (name.empty() || !std::ranges::all_of(name, is_plain))
    fail(
        "'{}' is not a name for an auxiliary loss, a metric or an inspected value; expected "
        "lower-case letters, digits and '_'",
        name);
  if (is_reported && (name.starts_with(kReservedPrefix) || name.ends_with(kReservedSuffix) ||
                      std::ranges::find(kReserved, name) != std::end(kReserved)))
    fail(
        "an auxiliary loss or a metric cannot be called '{}': metrics.jsonl has other values of "
        "this name; rename it",
        name);
}

std::vector<std::string> reported_names(std::string_view name, bool is_histogram) {
  if (!is_histogram) return {std::string(name)};
  std::vector<std::string> names;
  for (const std::string_view part : kHistogramParts)
    names.push_back(fmt::format("{}{}", name, part));
  return names;
}

BodyScope& body_of_loop() {
  BodyScope* const body = innermost_body();
  CHECK(body != nullptr, "a layer of another graph adds to a SummaryScope");
  return *body;
}

// Returns the values that a loop has stacked: one for each layer of a stack, else the sum of all
// iterations. Inspected values keep the axis.
Tensor out_of_loop(const std::string& name, const Tensor& stacked) {
  if (is_inspected(name)) return stacked;
  const std::string axis = stacked.type().axes.front().name;
  const bool is_stack = axis == kLayersAxis && name.find(kStack) != std::string::npos;
  return is_stack ? stacked : reduce_sum(stacked, axis);
}

}  // namespace

void add_loss(std::string_view name, Operand loss) {
  if (innermost == nullptr) return;
  const ErrorPrefix where(loss.site.text());
  const SiteScope from(loss.site);
  const Type& type = loss.tensor.type();
  if (type.dtype != DType::kF32 || type.rank() != 0)
    fail("the auxiliary loss '{}' is {}, expected an f32 scalar; {} it", name, type.text(),
         type.rank() != 0 ? "reduce" : "cast");
  SummaryScope& scope = *innermost;
  scope.keep_loss(scope.full_name(name, SummaryScope::Kind::kScalar), loss.tensor);
}

void add_metric(std::string_view name, const Metric& metric, SourceSite site) {
  if (innermost == nullptr) return;
  const ErrorPrefix where(site.text());
  const SiteScope from(site);
  const Type& sum = metric.sum.type();
  const Type& weight = metric.weight.type();
  if (sum.dtype != DType::kF32 || sum.rank() > 1 || sum.has(kLayersAxis))
    fail("the sum of metric '{}' is {}, expected f32 with at most one axis, which is not '{}'",
         name, sum.text(), kLayersAxis);
  if (weight.dtype != DType::kF32 || (weight.rank() != 0 && weight.names() != sum.names()))
    fail("the weight of metric '{}' is {}, expected an f32 scalar{}", name, weight.text(),
         sum.rank() == 0 ? "" : fmt::format(", or f32 with the axis '{}'", sum.axes[0].name));
  SummaryScope& scope = *innermost;
  const auto kind = sum.rank() == 0 ? SummaryScope::Kind::kScalar : SummaryScope::Kind::kHistogram;
  scope.keep_metric(scope.full_name(name, kind), metric);
}

Restored<bool> activations_scope(bool is_open) { return {records_activations, is_open}; }

void add_activation(std::string_view name, Operand x) {
  if (innermost == nullptr || !records_activations) return;
  const std::string metric = fmt::format("{}_mean_square", name);
  if (innermost->names_.contains(fmt::format("{}.{}", traced_path(), metric))) return;
  const SiteScope from(x.site);
  const Tensor squares = square(as_dtype(reduced(x.tensor), DType::kF32));
  const auto elements = static_cast<double>(squares.type().elements());
  add_metric(metric, {reduce_sum(squares), constant(elements, DType::kF32)}, x.site);
}

bool collects_summaries() { return innermost != nullptr; }

SummaryScope* SummaryScope::current() { return innermost; }

SummaryScope::SummaryScope() : graph_(traced_graph()), innermost_(innermost, this) {}

std::string SummaryScope::full_name(std::string_view name, Kind kind) {
  check_name(name, kind != Kind::kInspected);
  const std::string& path = traced_path();
  std::string full = path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
  if (!names_.insert(full).second)
    fail(
        "a layer adds '{}' twice, as an auxiliary loss, a metric or an inspected value; each needs "
        "a name of its own",
        name);
  if (kind == Kind::kInspected) return full;
  if (kinds_.try_emplace(std::string(name), kind).first->second != kind)
    fail("the metric '{}' has one value in one layer, and an axis in another; rename one of them",
         name);
  return full;
}

// Keeps a value of a loop's body when the loop has been traced, and so on outwards.
void SummaryScope::keep_loss(const std::string& name, const Tensor& loss) {
  if (&traced_graph() == &graph_) {
    losses_[name] = replicated(loss);
    return;
  }
  body_of_loop().stack({loss}, [this, name](const std::vector<Tensor>& stacked) {
    keep_loss(name, out_of_loop(name, stacked[0]));
  });
}

void SummaryScope::keep_metric(const std::string& name, const Metric& metric) {
  if (&traced_graph() == &graph_) {
    metrics_[name] = {replicated(metric.sum), replicated(metric.weight)};
    return;
  }
  body_of_loop().stack(
      {metric.sum, metric.weight}, [this, name](const std::vector<Tensor>& stacked) {
        keep_metric(name, {out_of_loop(name, stacked[0]), out_of_loop(name, stacked[1])});
      });
}

void SummaryScope::check_names(const std::map<std::string, Metric>& of_model) const {
  std::set<std::string> taken;
  for (const auto& [name, metric] : of_model) {
    const bool is_reserved = std::ranges::find(kReserved, name) != std::end(kReserved);
    if (name.empty() || is_reserved || name.find_first_of("./") != std::string::npos)
      fail("the model has a metric '{}'; expected a name without '.' and '/'{}", name,
           is_reserved ? " that metrics.jsonl does not use itself" : "");
    taken.insert(name);
  }
  for (const auto& [name, kind] : kinds_)
    for (const std::string& reported : reported_names(name, kind == Kind::kHistogram))
      if (!taken.insert(reported).second)
        fail("two metrics are reported as '{}', one of them '{}' of a layer; rename it", reported,
             name);
}

std::string_view short_name(std::string_view summary) {
  return summary.substr(summary.rfind('.') + 1);  // The whole summary if it has no dot.
}

std::string name_in_stack(std::string_view summary, int64_t index) {
  std::string name(summary);
  const size_t at = name.find(kStack);
  CHECK(at != std::string::npos, "{} is not stacked", summary);
  return name.replace(at, kStack.size(), fmt::format("[{}]", index));
}

}  // namespace tessera
