// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/single_task.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/compile/autodiff/gradient_reach.h"
#include "core/compile/simplify.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "layers/fprop_scope.h"
#include "layers/summaries.h"
#include "tasks/task/histogram.h"
#include "tasks/task/learner/base_optimizer.h"
#include "tasks/task/leaves.h"
#include "tasks/task/microbatches.h"
#include "tasks/task/model_pipeline.h"
#include "tasks/task/mup.h"

namespace tessera {

REGISTER_TEMPLATE(BaseTask, SingleTask);

namespace {

// Graph inputs "batch/…" with the layout of the activation rules.
Features batch_features(const Batch& batch, Mode mode) {
  Features features;
  features.mode = mode;
  for (const auto& [name, array] : batch) {
    Type type{array.dtype, {}, {}};
    for (size_t i = 0; i < array.axes.size(); ++i)
      type.axes.push_back({array.axes[i], array.shape[i], {}});
    type = apply_rules(traced_rules().activations, traced_mesh(), type);
    features.tensors[name] =
        input(std::string(names::kBatchPrefix) + name, InputKind::kBatch, type);
  }
  return features;
}

// A moving average has the parameters' names with a prefix, and their types.
std::vector<Tensor> weight_inputs(const ParameterTable& table, Weights weights) {
  if (weights == Weights::kTrained) return parameter_inputs(table);
  std::vector<Tensor> inputs;
  for (const Parameter& each : table.parameters())
    inputs.push_back(input(ema_name(each.path), InputKind::kState, stored_type(each)));
  return inputs;
}

// Sums and weights are output without dividing.
void output_metric(std::string_view name, const Metric& metric) {
  output(fmt::format("{}{}", names::kSumPrefix, name), replicated(metric.sum));
  output(fmt::format("{}{}", names::kWeightPrefix, name), replicated(metric.weight));
}

// Adds the loss to the metrics as "loss".
void output_metrics(const ModelOutput& output) {
  output_metric(names::kLoss, output.loss);
  for (const auto& [name, metric] : output.metrics) output_metric(name, metric);
}

// Error for a metric among the losses from which no weight has a gradient, such as log_pplx.
void check_losses(const Graph& graph, const std::map<std::string, double>& losses) {
  for (const auto& [name, factor] : losses) {
    const auto* const sum = graph.find_output(fmt::format("{}{}", names::kSumPrefix, name));
    const ValueFlags reached = reached_by_gradient(graph, sum->value);
    if (std::ranges::none_of(graph.inputs(), [&](const GraphInput& input) -> bool {
          return input.kind == InputKind::kParameter && reached[input.value];
        }))
      fail("losses: the metric '{}' has no gradient; 'loss' is the model's own loss", name);
  }
}

// The noise is a function of seed, path, element and step: all meshes and microbatches have it.
std::vector<Tensor> with_noise(const VariationalNoise& p, const PathPatterns& noisy,
                               const ParameterTable& table, std::vector<Tensor> parameters,
                               const Tensor& step) {
  const auto f32 = [](double value) { return constant(value, DType::kF32); };
  for (size_t i = 0; i < parameters.size() && p.scale > 0.0; ++i) {
    const Parameter& declared = table.parameters()[i];
    if (declared.balanced_by || declared.is_frozen || !noisy.match(declared.path)) continue;
    const PathScope path(declared.path);
    const ErrorPrefix field("variational_noise");
    const Type type = parameters[i].type();
    const Tensor start = constant(static_cast<double>(p.start_step), DType::kI32);
    const Tensor scale = where(less(step, start), f32(0.0), f32(p.scale));
    parameters[i] = (parameters[i] + as_dtype(random_normal(type.axes, step) * scale, type.dtype))
                        .named(declared.path);
  }
  return parameters;
}

bool is_mesh_invariant(const SingleTask::HParams& p) {
  return p.train.numerics == Numerics::kMeshInvariant;
}

// The schedule of a pipeline is for the leaves of a device.
void check_leaves(const Features& features, int64_t num_microbatches) {
  if (const int64_t leaves = leaves_of_device(features); num_microbatches != leaves)
    fail(
        "numerics=mesh_invariant: the batch has {} leaves for each device that splits it, but "
        "task.train.num_microbatches, for which the pipeline's schedule is, is {}; set it to {}",
        leaves, num_microbatches, leaves);
}

Tensor norm_of(const Tensor& x) {
  const Tensor squares = sum_of_squares(x);
  return sqrt(squares.type().rank() > 0 ? reduced(reduce_sum(squares)) : squares);
}

// Sets the label weights of examples with eval_sample_weights 0 to 0, so that padding never counts.
void weigh_examples(Features* features) {
  const Tensor examples = features->find("eval_sample_weights");
  if (!examples.valid()) return;
  Tensor weights = features->find("weights");
  if (!weights.valid()) {
    const Tensor labels = features->find("labels");
    if (!labels.valid()) return;  // A model without labels sets its own weights.
    weights = constant(1.0, DType::kF32, labels.type().axes);
  }
  features->tensors["weights"] = weights * examples;
}

// Per-example outputs, f32["batch"], replicated; the host sums them by dataset, source and tag, in
// f64 and in a fixed order. Outputs rows/<metric> and row_weights/<metric>, and row/<name> for
// per-example fields of the batch. Outputs nothing if the model gives no per-token terms.
void output_rows(const ModelOutput& output, const Features& features) {
  if (output.terms.empty()) return;
  for (const auto& [name, terms] : output.terms) {
    const auto add = [&, &metric = name](std::string_view prefix, const Tensor& each) {
      tessera::output(std::string(prefix) + metric, replicated(sum_of_examples(metric, each)));
    };
    add(names::kRowSumPrefix, terms.sum);
    add(names::kRowWeightPrefix, terms.weight);
  }
  for (const char* name : {"eval_sample_weights", "label_bytes", "source"})
    if (const Tensor rows = features.find(name); rows.valid())
      tessera::output(std::string(names::kRowPrefix) + name, replicated(rows));
}

// Whether the layer at this path, or one that contains it, keeps decoding state.
bool keeps_state(const Graph& decoding, std::string_view path) {
  return std::ranges::any_of(decoding.inputs(), [&](const GraphInput& input) {
    const size_t end = input.name.rfind('/');
    if (input.kind != InputKind::kState || end == std::string::npos) return false;
    const std::string_view folders = std::string_view(input.name).substr(0, end);
    const std::string_view layer = folders.substr(folders.rfind('/') + 1);
    return path == layer || (path.starts_with(layer) && path[layer.size()] == '.');
  });
}

// Attention to the new tokens alone is wrong, unless its layer adds what it keeps of earlier ones.
void check_attention_reads_state(const Graph& graph, const Graph& decoding) {
  for (const Node& node : graph.nodes()) {
    for (const auto& body : node.bodies) check_attention_reads_state(*body, decoding);
    if (node.op != &kAttentionOp && node.op != &kCausalMaskOp && node.op != &kShiftRightOp)
      continue;
    if (keeps_state(decoding, node.path)) continue;
    fail(
        "{}: this model cannot decode token by token: {} sees the new tokens only, and its layer "
        "keeps no decoding state of earlier ones (see FpropScope::cache() and "
        "layers/fprop_scope.h) [in {}]",
        node.site.text(), node.op->name, node.path);
  }
}

// Row i of each prompt becomes its row parents[i]; the rows of a prompt are on one device.
Tensor chosen_rows(const Tensor& cache, const Tensor& parents, int64_t rows_per_prompt) {
  const Axis batch = cache.type().axis("batch");
  const Axis prompts{"prompts", batch.size / rows_per_prompt, batch.split};
  const auto by_prompt = [&](const Tensor& x, const char* rows) {
    return split_axis(x, "batch", prompts, {rows, rows_per_prompt, {}});
  };
  const Tensor rows = reshard(parents, make_type(DType::kI32, {batch}));
  const Tensor chosen = gather(by_prompt(cache, "parents"), by_prompt(rows, "rows"), "parents");
  return merge_axes(chosen, "prompts", "rows", "batch");
}

}  // namespace

SingleTask::SingleTask(const HParams& p)
    : p_(p),
      model_(p.model.instantiate()),
      learner_(p.learner),
      noisy_(p.variational_noise.weights, "variational_noise.weights") {
  check(p.decode);
  noisy_.check(model_->parameters());
  if (!p.mup_base.empty()) {
    const auto widths = relative_widths(model_->parameters(), p.mup_base);
    check_mup(p.model, p.mup_base, widths);
    model_->set_widths(widths);
  }
  learner_.check(model_->parameters());
  if (learner_.multi_optimizer().reads_drawn_gradient() && !model_->draws_labels())
    fail(
        "an optimizer (SophiaG) needs the gradient of labels drawn from the model's predictions, "
        "which {} does not give (BaseModel::draws_labels); LanguageModel does",
        p.model.name());
}

Graph SingleTask::train_graph(const TraceSetting& setting) const {
  Graph graph;
  const TraceScope trace(graph, setting.mesh, setting.rules);
  const SeedScope seed(p_.train.seed);
  const auto activations = activations_scope(p_.train.activations);
  const MeshInvariantScope mesh_invariant(is_mesh_invariant(p_));
  const ParameterTable& table = model_->parameters();
  const std::vector<Tensor> parameters = parameter_inputs(table);
  Features features = batch_features(setting.batch, Mode::kTrain);
  features.step = input(std::string(names::kStep), InputKind::kScalar, make_type(DType::kI32, {}));
  features.losses = &p_.losses;
  std::vector<Tensor> learning_rates;
  for (const auto& each : learner_.optimizers())
    learning_rates.push_back(
        input(each.learning_rate, InputKind::kScalar, make_type(DType::kF32, {})));

  std::vector<int32_t> trained;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (learner_.trains(table.parameters()[i])) trained.push_back(static_cast<int32_t>(i));
  const MicrobatchLoop loop = is_pipelined(setting.rules, setting.mesh)
                                  ? MicrobatchLoop::kAlways
                                  : MicrobatchLoop::kOfSeveral;
  const int64_t microbatches = p_.train.num_microbatches;
  const std::vector<Tensor> weights =
      with_noise(p_.variational_noise, noisy_, table, parameters, features.step);
  if (is_mesh_invariant(p_) && loop == MicrobatchLoop::kAlways)
    check_leaves(features, microbatches);
  const auto differentiated = [&](const Features& batch) {
    return is_mesh_invariant(p_)
               ? differentiate_leaves(*model_, weights, trained, batch)
               : differentiate(*model_, weights, trained, batch, microbatches, loop);
  };
  const Differentiated step = differentiated(features);
  const MultiOptimizer& optimizers = learner_.multi_optimizer();
  Renewal renewal{.renews = setting.renews || optimizers.interval() == 1};
  if (renewal.renews && optimizers.reads_drawn_gradient()) {
    if (loop == MicrobatchLoop::kAlways)
      fail(
          "an optimizer (SophiaG) reads a second gradient in some steps, which a pipeline does not "
          "compute; train it without stages, or take another optimizer");
    features.losses = nullptr;
    features.draws_labels = true;
    const Differentiated again = differentiated(features);
    renewal.gradients = again.gradients;
    renewal.labels = replicated(again.output.loss.weight);
  }

  const LearnerReport report = learner_.step(table, parameters, step.gradients, step.loss,
                                             step.output.metrics, learning_rates, renewal);
  output(std::string(names::kLoss), step.loss);
  output_metrics(step.output);
  check_losses(graph, p_.losses);
  if (report.deviations.loss) {
    output_metric(names::kLossDeviations, {report.deviations.loss, constant(1.0, DType::kF32)});
    output_metric(names::kGradNormDeviations,
                  {report.deviations.grad_norm, constant(1.0, DType::kF32)});
  }
  output(std::string(names::kGradNorm), report.grad_norm);
  output(std::string(names::kApplied),
         where(report.applied, constant(1.0, DType::kF32), constant(0.0, DType::kF32)));
  output(std::string(names::kSkipped), report.skipped);
  output(std::string(names::kSkippedInARow), report.skipped_in_a_row);
  for (size_t i = 0; i < trained.size(); ++i) {
    const std::string& path = table.at(trained[i]).path;
    const Tensor& weight = parameters[static_cast<size_t>(trained[i])];
    if (p_.train.parameter_norms) {
      output(std::string(names::kParameterNormPrefix) + path, norm_of(weight));
      output(std::string(names::kGradientNormPrefix) + path, norm_of(step.gradients[i]));
    }
    if (!setting.histograms) continue;
    output(fmt::format("{}weights/{}", names::kHistogramPrefix, path), count_magnitudes(weight));
    output(fmt::format("{}gradients/{}", names::kHistogramPrefix, path),
           count_magnitudes(step.gradients[i]));
  }
  return graph;
}

Graph SingleTask::eval_graph(const TraceSetting& setting, Weights weights) const {
  Graph graph;
  const TraceScope trace(graph, setting.mesh, setting.rules);
  const MeshInvariantScope mesh_invariant(is_mesh_invariant(p_));
  Features features = batch_features(setting.batch, Mode::kEval);
  weigh_examples(&features);
  const std::vector<Tensor> parameters = weight_inputs(model_->parameters(), weights);
  const ModelOutput scores =
      is_pipelined(setting.rules, setting.mesh)
          ? score_in_microbatches(*model_, parameters, features,
                                  most_microbatches(features, p_.train.num_microbatches))
          : score(*model_, parameters, features);
  output_metrics(scores);
  output_rows(scores, features);
  const auto nats = scores.terms.find("log_pplx");
  if (setting.scores_tokens && nats != scores.terms.end())
    output(std::string(names::kLogProbs), replicated(neg(nats->second.sum)));
  return without_unread_state(std::move(graph));
}

Graph SingleTask::logits_graph(const TraceSetting& setting, Weights weights) const {
  Graph graph;
  const TraceScope trace(graph, setting.mesh, setting.rules);
  const MeshInvariantScope mesh_invariant(is_mesh_invariant(p_));
  const Features features = batch_features(setting.batch, Mode::kEval);
  const FpropScope scope(weight_inputs(model_->parameters(), weights), features);
  Tensor logits = model_->logits(features);
  if (logits.dtype() != DType::kF32) logits = cast(logits, DType::kF32);
  // All copies are equal, so the maximum over the batch is any of them.
  const Tensor one = reduce_max(logits, "batch");
  output(std::string(names::kLogits), replicated(one));
  return graph;
}

Graph SingleTask::decode_graph(const DecodeSetting& setting, Weights weights) const {
  Graph graph;
  const AxisRules rules = without_sequence(setting.rules);
  const TraceScope trace(graph, setting.mesh, rules);
  const auto rows_type = [&](std::vector<Axis> axes) {
    return apply_rules(rules.activations, setting.mesh, make_type(DType::kI32, std::move(axes)));
  };
  const auto rows_input = [&](std::string_view name, std::vector<Axis> axes) {
    return input(std::string(name), InputKind::kBatch, rows_type(std::move(axes)));
  };
  const Axis batch{"batch", setting.batch, {}};
  Features features{.mode = Mode::kEval};
  features.tensors["ids"] = rows_input(names::kIds, {batch, {"seq", setting.seq, {}}});
  features.tensors["last"] = rows_input(names::kLast, {batch});
  for (const std::string_view name : {names::kEncoderIds, names::kEncoderSegmentIds}) {
    if (setting.encoder_length == 0) break;
    const std::vector<Axis> axes = {batch, {"encoder_seq", setting.encoder_length, {}}};
    features.tensors[std::string(name.substr(names::kBatchPrefix.size()))] =
        setting.encodes ? rows_input(name, axes) : constant(0.0, DType::kI32, rows_type(axes).axes);
  }
  DecodeCache cache(rows_input(names::kStarts, {batch}), features.get("last"),
                    rows_input(names::kTokens, {batch}), setting.cache_length, setting.cache,
                    setting.encodes);
  const ParameterTable& table = model_->parameters();
  CastWeights cast_weights(table);
  const FpropScope scope(weight_inputs(table, weights), features, &cache,
                         setting.keep_cast_weights ? &cast_weights : nullptr);
  Tensor logits = model_->next_logits(features);
  if (logits.dtype() != DType::kF32) logits = cast(logits, DType::kF32);
  std::vector<Axis> axes = rows_type({batch}).axes;
  axes.push_back(logits.type().axes[1]);
  axes[1].split.clear();
  output(std::string(names::kLogits), reshard(logits, make_type(DType::kF32, axes)));
  check_attention_reads_state(graph, graph);
  return without_unread_state(std::move(graph));
}

Graph SingleTask::cast_weights_graph(const DecodeSetting& setting, Weights weights) const {
  const Graph decoding = decode_graph(setting, weights);
  Graph graph;
  const TraceScope trace(graph, setting.mesh, setting.rules);
  const ParameterTable& table = model_->parameters();
  CastWeights::trace_casts(decoding, table, weight_inputs(table, weights));
  return without_unread_state(std::move(graph));
}

Graph SingleTask::reorder_cache_graph(const DecodeSetting& setting) const {
  const Graph decoding = decode_graph(setting, Weights::kTrained);
  Graph graph;
  const TraceScope trace(graph, setting.mesh, setting.rules);
  const Type rows = apply_rules(setting.rules.activations, setting.mesh,
                                make_type(DType::kI32, {{"batch", setting.batch, {}}}));
  const Tensor parents = input(std::string(names::kParents), InputKind::kBatch, rows);
  const auto chosen = [&](const Tensor& cache, const Tensor& from) {
    return chosen_rows(cache, from, setting.rows_per_prompt);
  };
  for (const GraphInput& state : decoding.inputs()) {
    if (state.kind != InputKind::kState || !decoding.type(state.value).has("batch")) continue;
    const Tensor cache = input(state.name, InputKind::kState, decoding.type(state.value));
    const Axis leading = cache.type().axes.front();
    if (leading.name == "batch") {
      graph.add_update(state.name, chosen(cache, parents).id());
      continue;
    }
    const RepeatResult stack =
        repeat(leading.name, leading.size, {}, {cache},
               [&](Tensor, std::vector<Tensor>, std::vector<Tensor> slices) -> RepeatBody {
                 return {{}, {chosen(slices[0], imported(parents))}};
               });
    graph.add_update(state.name, stack.stacked[0].id());
  }
  return graph;
}

}  // namespace tessera
