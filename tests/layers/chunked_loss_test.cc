// SPDX-License-Identifier: Apache-2.0
// The loss of an output head in chunks of tokens: the values and gradients of the whole loss, on
// one device and on meshes, and no array of all logits.
#include "core/check/numeric_gradient.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/compile/remat/remat.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/fprop_scope.h"
#include "layers/models/base_model.h"
#include "layers/parameter.h"
#include "tests/layers/loss_trial.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

constexpr int64_t kVocab = 12, kEmbed = 4, kBatch = 4, kSeq = 10;

struct Head {
  bool tied = true;
  SoftmaxOptions loss;
  DType compute = DType::kF32;
  Mesh mesh;
  AxisRules rules;
};

Template<BaseSoftmax> template_of(const Head& head) {
  const LayerHParams layer{.dtypes = DTypePolicy{.compute = head.compute}};
  if (head.tied)
    return SharedEmbeddingSoftmax::HParams{.vocab_size = kVocab,
                                           .model_dims = kEmbed,
                                           .use_bias = true,
                                           .loss = head.loss,
                                           .layer = layer};
  return FullSoftmax::HParams{.vocab_size = kVocab,
                              .model_dims = kEmbed,
                              .use_bias = true,
                              .loss = head.loss,
                              .layer = layer};
}

// The weighted loss and metrics of the head, with all gradients. A tied table also embeds the ids
// that make the hidden state.
Graph traced(const Head& head) {
  Graph graph;
  const TraceScope trace(graph, head.mesh, head.rules);
  const auto layer = template_of(head).instantiate();
  const auto placed = [&](const char* name, const Type& type) {
    return input(name, InputKind::kBatch, apply_rules(head.rules.activations, head.mesh, type));
  };
  const std::vector<Axis> tokens = {{"batch", kBatch, {}}, {"seq", kSeq, {}}};
  std::vector<Axis> hidden = tokens;
  hidden.push_back({"embed", kEmbed, {}});
  const Tensor labels = placed("labels", make_type(DType::kI32, tokens));
  const Tensor weights = placed("weights", make_type(DType::kF32, tokens));
  const Tensor x =
      input("x", InputKind::kParameter,
            apply_rules(head.rules.activations, head.mesh, make_type(DType::kF32, hidden)));
  std::vector<Tensor> parameters = parameter_inputs(layer->parameters());
  Features features;
  const FpropScope scope(parameters, features);
  Tensor h = place(cast(x, head.compute), "residual");
  if (head.tied) h = h + layer->embed_ids(labels);
  const CrossEntropy scores = layer->loss(h, labels);
  const ModelOutput result = weighted_output(scores, weights);
  const Tensor loss = place(result.loss.sum) / place(result.loss.weight);
  output("loss", loss);
  output("each loss", scores.loss);
  for (const auto& [name, metric] : result.metrics) output(name, place(metric.sum));
  std::vector<std::string> names;
  for (const Parameter& each : layer->parameters().parameters()) names.push_back(each.path);
  names.push_back("x");
  parameters.push_back(x);
  const std::vector<Tensor> slopes = gradients(loss, parameters);
  for (size_t i = 0; i < parameters.size(); ++i) output("gradient of " + names[i], slopes[i]);
  return graph;
}

ReferenceInputs inputs_of(const Graph& graph) { return weighted_inputs(graph, kVocab); }

LossValues values_of(const Head& head) {
  const Graph graph = traced(head);
  return loss_values(graph, inputs_of(graph), head.mesh);
}

const SoftmaxOptions kOptions[] = {
    {.chunk_tokens = 0},
    {.label_smoothing = 0.1, .z_loss = 0.01, .chunk_tokens = 0},
    {.label_smoothing = 0.2, .z_loss = 0.02, .soft_cap = 3.0, .chunk_tokens = 0},
    {.z_loss = 0.02, .focal_gamma = 1.5, .soft_cap = 3.0, .chunk_tokens = 0}};

TEST_CASE("a loss has no more chunks than its tokens need") {
  // 4 rows of 10 tokens: 2 and 3 of each row in a chunk.
  for (const auto& [tokens, chunks] : {std::pair(8, 5), {12, 4}}) {
    const Graph graph = traced({.loss = {.chunk_tokens = tokens}});
    std::vector<int64_t> counts;
    for (const Node& node : graph.nodes())
      if (is_repeat(node)) counts.push_back(Loop(node).count());
    REQUIRE(!counts.empty());
    for (const int64_t count : counts) REQUIRE(count == chunks);
  }
}

TEST_CASE("a chunked loss has the values and gradients of the whole one") {
  for (const bool tied : {true, false})
    for (const SoftmaxOptions& options : kOptions) {
      Head head{.tied = tied, .loss = options};
      const LossValues whole = values_of(head);
      // 5, 4, 3, 2 and 1 positions a chunk; with 4 and 3 the last chunk is not full.
      for (const int64_t tokens : {24, 16, 12, 8, 1}) {
        INFO("tied " << tied << ", soft_cap " << options.soft_cap << ", " << tokens << " tokens");
        head.loss.chunk_tokens = tokens;
        require_same_losses(values_of(head), whole);
      }
    }
}

TEST_CASE("the gradients of a chunked loss agree with finite differences") {
  for (const SoftmaxOptions& loss : std::initializer_list<SoftmaxOptions>{
           {.label_smoothing = 0.1, .z_loss = 0.01, .soft_cap = 3.0, .chunk_tokens = 12},
           {.focal_gamma = 0.5, .chunk_tokens = 12},
           {.z_loss = 0.01, .focal_gamma = 2.0, .soft_cap = 3.0, .chunk_tokens = 12}}) {
    const Graph graph =
        rematerialize(traced({.loss = loss}), parse_remat_policy("save_everything"));
    const GradientDifference worst = worst_gradient(graph, inputs_of(graph));
    INFO(worst.name << "[" << worst.element << "]: " << worst.traced << ", " << worst.numeric);
    REQUIRE(worst.relative_size() < 1e-8);
  }
}

// The most elements of an array with the axis "vocab" that is not a weight.
int64_t most_logits(const Graph& graph) {
  int64_t most = 0;
  for (const Value& value : graph.values())
    if (value.type->has("vocab") && !value.type->has("embed"))
      most = std::max(most, value.type->elements());
  for (const Node& node : graph.nodes())
    for (const auto& body : node.bodies) most = std::max(most, most_logits(*body));
  return most;
}

TEST_CASE("a chunked loss never holds the logits of more than one chunk") {
  for (const char* policy : {"save_everything", "save_nothing", "save_dot_only"}) {
    INFO(policy);
    const auto compiled = [&](int64_t tokens) {
      return rematerialize(traced({.loss = {.chunk_tokens = tokens}}), parse_remat_policy(policy));
    };
    REQUIRE(most_logits(compiled(0)) == kBatch * kSeq * kVocab);
    REQUIRE(most_logits(compiled(8)) == 8 * kVocab);
  }
}

TEST_CASE("a chunked loss has one device's values on a mesh") {
  const SoftmaxOptions options{
      .label_smoothing = 0.1, .z_loss = 0.02, .soft_cap = 4.0, .chunk_tokens = 0};
  for (const bool tied : {true, false}) {
    const Head one{.tied = tied, .loss = options};
    const LossValues whole = values_of(one);
    for (const LossLayout& layout : kLossLayouts) {
      Head head{.tied = tied, .loss = options, .mesh = layout.mesh(), .rules = layout.rules()};
      for (const int64_t tokens : {8, 4, 1}) {
        INFO("tied " << tied << ", " << layout.weights << "; " << layout.activations << ", "
                     << tokens);
        head.loss.chunk_tokens = tokens;
        require_same_losses(values_of(head), whole);
      }
    }
  }
}

TEST_CASE("a negative number of tokens in a chunk is refused") {
  REQUIRE_THROWS_WITH(template_of({.loss = {.chunk_tokens = -1}}).instantiate(),
                      Catch::Contains("loss.chunk_tokens is -1, expected at least 0"));
}

}  // namespace
}  // namespace tessera
