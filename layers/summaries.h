// SPDX-License-Identifier: Apache-2.0
// Auxiliary losses and metrics of layers. Any `fprop` may add them, however deep it is: inside
// Repeated, in rematerialised regions, in microbatches.
//
//   add_loss("load_balance", p_.load_balance_weight * imbalance);
//   add_metric("dropped_tokens", {dropped, routed});       // The fraction of tokens dropped.
//   add_metric("expert_load", {tokens_of_expert, routed}); // f32["experts"]: a histogram.
//
// The loss that a training step optimises is the model's mean loss plus the sum of all auxiliary
// losses. Every one of them is also reported, as a metric. docs/layers.md ("Auxiliary losses and
// metrics") has the names and meanings of what is reported.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "core/graph/trace.h"

namespace tessera {

// A weighted mean before the division: f32, both possibly partial sums. Sums and weights are added
// over microbatches, hosts and eval batches; the quotient is taken last.
struct Metric {
  Tensor sum;
  Tensor weight;
};

// Adds a term to the loss of the training step: f32 scalar, already weighted, possibly a partial
// sum. Over microbatches it is averaged, weighted by the weight of the model's loss (tokens). Error
// if it has another type, if the name is not lower-case letters, digits and '_', if it is a name
// that every line of metrics.jsonl has, or if the layer adds the same name twice.
void add_loss(std::string_view name, Operand loss);

// Reports sum / weight. `sum` is an f32 scalar or has one axis, which must not be `layers`; then
// all quotients are reported, as a histogram. `weight` is a scalar or has the axis of `sum`. Errors
// as of add_loss.
void add_metric(std::string_view name, const Metric& metric,
                SourceSite site = SourceSite::current());

// Reports the mean square of x as the metric "<name>_mean_square", in an activations_scope(true).
// If a layer calls it several times with one name, only the first call reports.
void add_activation(std::string_view name, Operand x);
Restored<bool> activations_scope(bool is_open);

// Returns whether a scope collects summaries. In decoding none does: the two functions do nothing,
// and a layer need not compute their arguments.
bool collects_summaries();

// Collects the summaries of the graph being traced while it is alive. BaseModel and TestedLayer
// open one.
//
// Names are "<path of the layer>.<name>". Summaries in a loop over `layers`, below Repeated, are
// stacked on that axis, under a path with "[]": "lm.transformer.x_layers[].ffn.load_balance". Other
// loops sum their iterations.
class SummaryScope {
 public:
  SummaryScope();

  // Returns f32 scalars or f32["layers"], of the graph that was traced when the scope was opened;
  // not partial.
  const std::map<std::string, Tensor>& losses() const { return losses_; }
  // Returns f32, with the leading axis `layers` if stacked; neither split nor partial. Also values
  // of inspect(), with a name that is_inspected().
  const std::map<std::string, Metric>& metrics() const { return metrics_; }
  bool empty() const { return losses_.empty() && metrics_.empty(); }
  // Checks names: Error if one of the names under which values are reported is also that of a
  // metric of the model, or if a name of the model's metrics looks like one with a path.
  void check_names(const std::map<std::string, Metric>& of_model) const;

 private:
  friend void add_loss(std::string_view name, Operand loss);
  friend void add_metric(std::string_view name, const Metric& metric, SourceSite site);
  friend void add_activation(std::string_view name, Operand x);
  friend void inspect(Operand x, std::string_view name);

  enum class Kind { kScalar, kHistogram, kInspected };
  static SummaryScope* current();  // The innermost; null: none is alive.
  std::string full_name(std::string_view name, Kind kind);
  void keep_loss(const std::string& name, const Tensor& loss);
  void keep_metric(const std::string& name, const Metric& metric);

  const Graph& graph_;
  std::map<std::string, Tensor> losses_;
  std::map<std::string, Metric> metrics_;
  std::set<std::string> names_;                     // Names of everything added.
  std::map<std::string, Kind, std::less<>> kinds_;  // By name without the path.
  Restored<SummaryScope*> innermost_;
};

// Returns the name without the path of its layer: "load_balance".
std::string_view short_name(std::string_view summary);
// Returns the name of layer `index` of a stack: the first "[]" becomes "[<index>]".
std::string name_in_stack(std::string_view summary, int64_t index);

// The metric of a tensor that a layer inspects (layers/inspect.h) is called "inspect/<path of the
// layer>.<name> <type>".
inline constexpr std::string_view kInspectPrefix = "inspect/";
inline bool is_inspected(std::string_view metric) { return metric.starts_with(kInspectPrefix); }

// Name of the sum of all auxiliary losses, as a metric.
inline constexpr std::string_view kAuxLoss = "aux_loss";
// Suffixes of the reported values of a histogram: "<name>_min", …
inline constexpr std::string_view kHistogramParts[] = {"_min", "_mean", "_max"};

}  // namespace tessera
