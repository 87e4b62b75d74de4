// SPDX-License-Identifier: Apache-2.0
// Cross-entropy over a split vocabulary: the values of the unsplit op, and the communication.
#include <algorithm>
#include <cmath>

#include "core/compile/autodiff/autodiff.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/op.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/simulated_mesh.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 8, kVocab = 24;

// Loss, log-likelihood, correctness and the gradient by the logits.
Graph traced(const Mesh& mesh, const std::string& logits, const std::string& labels,
             const CrossEntropyOptions& options) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Tensor x = input("logits", InputKind::kParameter, parse_type(logits));
  const Tensor y = input("labels", InputKind::kBatch, parse_type(labels));
  const CrossEntropy result = cross_entropy(x, y, "vocab", options);
  output("loss", result.loss);
  output("log_likelihood", result.log_likelihood);
  output("correct", result.correct);
  const Tensor weights = input("weights", InputKind::kBatch, result.loss.type());
  const Tensor total = place(reduce_sum(result.loss * weights));
  output("gradient", gradients(total, {x})[0]);
  return graph;
}

ReferenceInputs inputs_with(const std::vector<double>& logits) {
  ReferenceInputs inputs{{"logits", logits}, {"labels", {}}, {"weights", {}}};
  for (int64_t row = 0; row < kRows; ++row) {
    inputs["labels"].push_back(static_cast<double>(row * 5 % kVocab));
    inputs["weights"].push_back(1.0 + 0.25 * static_cast<double>(row));
  }
  return inputs;
}

// The largest logit of each row is at a different position, `height` above values in [-3, 3].
std::vector<double> logits_of(double height) {
  std::vector<double> logits;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kVocab; ++i) {
      const bool top = i == row * 7 % kVocab;
      logits.push_back(3.0 * std::sin(static_cast<double>(row * kVocab + i)) + (top ? height : 0));
    }
  }
  return logits;
}

TEST_CASE("Cross-entropy over a split vocabulary has the values of the unsplit one") {
  const Mesh mesh = Mesh::standard({2, 2, 2});
  const std::string axes =
      GENERATE("batch/data=8 vocab/mdl=24", "batch/replica=8 vocab/mdl/data=24",
               "batch=8 vocab/data/replica/mdl=24");
  const double height = GENERATE(0.0, 1e4, -1e4);
  const CrossEntropyOptions options =
      GENERATE(CrossEntropyOptions{}, CrossEntropyOptions{.label_smoothing = 0.2, .z_loss = 0.01},
               CrossEntropyOptions{.label_smoothing = 0.1, .z_loss = 0.02, .soft_cap = 4.0});
  CAPTURE(axes, height, options.label_smoothing, options.soft_cap);
  Type labels = parse_layout(axes);
  labels.dtype = DType::kI32;
  labels.axes.pop_back();
  const Graph split = traced(mesh, "f32[\"" + axes + "\"]", labels.text_sized(), options);
  const Graph whole = traced({}, "f32[\"batch=8 vocab=24\"]", "i32[\"batch=8\"]", options);
  const ReferenceInputs inputs = inputs_with(logits_of(height));
  const auto got = SimulatedMesh(split, mesh).run(inputs);
  for (const auto& [name, array] : evaluate(whole, inputs)) {
    CAPTURE(name);
    for (size_t i = 0; i < array.values.size(); ++i) {
      const double expected = array.values[i];
      REQUIRE(std::isfinite(expected));
      REQUIRE(std::abs(got.at(name)[i] - expected) <= 1e-12 * std::max(1.0, std::abs(expected)));
    }
  }
}

TEST_CASE(
    "A split vocabulary needs one maximum and one sum over the mesh, and nothing in the backward "
    "pass") {
  const Mesh mesh = Mesh::standard({1, 1, 4});
  const double smoothing = GENERATE(0.0, 0.1);
  const Graph graph = traced(mesh, "bf16[\"batch=8 vocab/mdl=24\"]", "i32[\"batch=8\"]",
                             {.label_smoothing = smoothing});
  std::vector<std::string> found;
  const Graph lowered = lower(graph, mesh);
  for (const Node& node : lowered.nodes()) {
    if (!is_collective(node)) continue;
    found.push_back(node.attributes.get(key::kReduction) + " of " +
                    lowered.type(node.inputs[0]).text_sized());
  }
  const std::string terms = smoothing > 0.0 ? "3" : "2";
  REQUIRE(found == std::vector<std::string>{"max of bf16[\"batch=8\"]",
                                            "sum of f32[\"terms=" + terms + " batch=8\"]"});
}

}  // namespace
}  // namespace tessera
