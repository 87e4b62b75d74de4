// SPDX-License-Identifier: Apache-2.0
// The loss of labels that a softmax draws from its predictions: against a plain implementation,
// also in chunks and on meshes.
#include <algorithm>
#include <cmath>

#include "core/compile/autodiff/autodiff.h"
#include "core/graph/trace.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/fprop_scope.h"
#include "tests/layers/loss_trial.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

constexpr int64_t kVocab = 12, kEmbed = 4, kBatch = 4, kSeq = 10;
constexpr double kSoftCap = 2.0;

// The loss of each token, and the gradients of their sum.
Graph traced(int64_t chunk_tokens, const Mesh& mesh = {}, const AxisRules& rules = {}) {
  Graph graph;
  const TraceScope trace(graph, mesh, rules);
  const auto layer =
      Template<BaseSoftmax>(
          FullSoftmax::HParams{.vocab_size = kVocab,
                               .model_dims = kEmbed,
                               .loss = {.soft_cap = kSoftCap, .chunk_tokens = chunk_tokens}})
          .instantiate();
  const auto placed = [&](const char* name, const std::vector<Axis>& axes) {
    return input(name, InputKind::kParameter,
                 apply_rules(rules.activations, mesh, make_type(DType::kF32, axes)));
  };
  const Axis batch{"batch", kBatch}, seq{"seq", kSeq}, embed{"embed", kEmbed};
  const Tensor x = placed("x", {batch, seq, embed}), uniform = placed("uniform", {batch, seq});
  const std::vector<Tensor> weights = parameter_inputs(layer->parameters());
  const FpropScope scope(weights, Features{});
  const CrossEntropy scores = layer->drawn_loss(place(x, "residual"), uniform);
  output("loss", replicated(scores.loss));
  const std::vector<Tensor> slopes = gradients(reduced(reduce_sum(scores.loss)), {x, weights[0]});
  output("slope of x", replicated(slopes[0]));
  output("slope of w", replicated(slopes[1]));
  return graph;
}

ReferenceInputs inputs_of(const Graph& graph) {
  ReferenceInputs inputs = sample_inputs(graph, kVocab);
  for (size_t i = 0; i < inputs.at("uniform").size(); ++i)
    inputs["uniform"][i] = static_cast<double>(i * 29 % 40) / 40.0;
  return inputs;
}

TEST_CASE("labels are drawn by the running sums of probabilities") {
  const Graph graph = traced(0);
  const ReferenceInputs inputs = inputs_of(graph);
  const std::vector<double> losses = loss_values(graph, inputs).at("loss");
  std::vector<int> drawn(kVocab);
  for (size_t token = 0; token < losses.size(); ++token) {
    std::vector<double> exponentials(kVocab);
    double total = 0.0;
    for (size_t v = 0; v < kVocab; ++v) {
      double logit = 0.0;
      for (size_t e = 0; e < kEmbed; ++e)
        logit += inputs.at("x")[token * kEmbed + e] * inputs.at("w")[e * kVocab + v];
      total += exponentials[v] = std::exp(kSoftCap * std::tanh(logit / kSoftCap));
    }
    size_t label = 0;
    for (double sum = exponentials[0]; sum / total <= inputs.at("uniform")[token];)
      sum += exponentials[++label];
    ++drawn[label];
    REQUIRE(losses[token] == Approx(-std::log(exponentials[label] / total)).epsilon(1e-12));
  }
  REQUIRE(std::ranges::count_if(drawn, [](int count) { return count > 0; }) > kVocab / 2);
}

TEST_CASE("the loss of drawn labels is the same in chunks and on meshes") {
  const Graph one = traced(0);
  const ReferenceInputs inputs = inputs_of(one);
  const LossValues whole = loss_values(one, inputs);
  for (const LossLayout& layout : kLossLayouts)
    for (const int64_t tokens : {0, 4}) {
      INFO(layout.weights << "; " << layout.activations << ", " << tokens);
      const Graph graph = traced(tokens, layout.mesh(), layout.rules());
      require_same_losses(loss_values(graph, inputs, layout.mesh()), whole);
    }
}

}  // namespace
}  // namespace tessera
