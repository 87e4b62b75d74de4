// SPDX-License-Identifier: Apache-2.0
// Whole models against an independent implementation: tests/golden/models.py writes the loss and
// every gradient of three small models; here the same weights and batches come from the same
// formulas.
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>

#include "core/backend/reference/interpreter.h"
#include "core/base/error.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/trace.h"
#include "layers/fprop_scope.h"
#include "tests/support/catch.h"
#include "tests/support/reference_models.h"

namespace tessera {
namespace {

constexpr int64_t kBatch = SmallSizes::kBatch, kSeq = SmallSizes::kSeq;

uint32_t name_hash(std::string_view name) {  // FNV-1a.
  uint32_t value = 0x811C9DC5u;
  for (const char character : name)
    value = (value ^ static_cast<unsigned char>(character)) * 0x01000193u;
  return value;
}

// Numbers in [-1, 1), as in models.py.
std::vector<double> noise(std::string_view name, int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + name_hash(name);
    for (int round = 0; round < 2; ++round) x = (x ^ (x >> 16)) * 0x45D9F3Bu;
    x ^= x >> 16;
    values.push_back(static_cast<double>(x >> 16) / 32768.0 - 1.0);
  }
  return values;
}

// A weight's values by models.py's rules: vectors small, scales about 1 where they multiply
// directly, matrices larger. An attention bias is a matrix there as here.
std::vector<double> weight_values(const Parameter& parameter) {
  const bool vector = parameter.type.rank() == 1;
  const double amplitude = vector ? 0.25 : 1.5 / std::sqrt(double{SmallSizes::kEmbed});
  const double centre = parameter.init.kind == InitKind::kConstant ? parameter.init.scale : 0.0;
  std::vector<double> values = noise(parameter.path, parameter.type.elements());
  for (double& value : values) value = centre + amplitude * value;
  return values;
}

ReferenceInputs token_batch() {
  const auto tokens = [](std::string_view name) {
    std::vector<double> ids = noise(name, kBatch * kSeq);
    for (double& id : ids) id = std::trunc((id + 1.0) * 0.5 * SmallSizes::kVocab);
    return ids;
  };
  const std::vector<double> segments = {1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2,
                                        1, 1, 1, 2, 2, 2, 2, 2, 2, 0, 0, 0};
  std::vector<double> positions, weights;
  for (size_t i = 0; i < segments.size(); ++i) {
    const bool starts = i % kSeq == 0 || segments[i] != segments[i - 1];
    positions.push_back(starts ? 0.0 : positions.back() + 1.0);
    weights.push_back(segments[i] > 0 ? 1.0 : 0.0);
  }
  return {{"batch/ids", tokens("ids")},
          {"batch/labels", tokens("labels")},
          {"batch/segment_ids", segments},
          {"batch/segment_pos", positions},
          {"batch/weights", weights}};
}

struct Golden {
  double loss = 0.0;
  std::map<std::string, std::vector<double>> gradients;
};

Golden read_golden(const std::string& name) {
  std::ifstream file(fmt::format("{}/tests/golden/{}.txt", TESSERA_SOURCE_DIR, name));
  REQUIRE(file.is_open());
  Golden golden;
  for (std::string word; file >> word;) {
    if (word == "#") {
      std::getline(file, word);
    } else if (word == "loss") {
      file >> golden.loss;
    } else {
      REQUIRE(word == "gradient");
      std::string path;
      size_t count = 0;
      file >> path >> count;
      std::vector<double>& values = golden.gradients[path];
      values.resize(count);
      for (double& value : values) file >> value;
    }
  }
  return golden;
}

// The model's loss traced, with the inputs it reads.
struct Traced {
  Graph graph;
  ReferenceInputs inputs;
};

void trace_loss(const LanguageModel::HParams& p, bool with_weights, Traced& traced) {
  const Mesh mesh;
  const AxisRules rules;
  const LanguageModel model(p);
  const TraceScope trace(traced.graph, mesh, rules);
  const std::vector<Tensor> parameters = parameter_inputs(model.parameters());
  for (const Parameter& each : model.parameters().parameters())
    traced.inputs[each.path] = weight_values(each);
  Features features;
  for (const auto& [name, values] : token_batch()) {
    if (name == "batch/weights" && !with_weights) continue;
    const DType dtype = name == "batch/weights" ? DType::kF32 : DType::kI32;
    features.tensors[name.substr(6)] = input(
        name, InputKind::kBatch, make_type(dtype, {{"batch", kBatch, {}}, {"seq", kSeq, {}}}));
    traced.inputs[name] = values;
  }
  const FpropScope scope(parameters, features);
  const ModelOutput result = model.fprop(features);
  output("loss", result.loss.sum / result.loss.weight);
}

TEST_CASE("models compute the losses of an independent implementation") {
  const auto check = [](const std::string& name, const LanguageModel::HParams& p,
                        bool with_weights) {
    INFO(name);
    Traced traced;
    trace_loss(p, with_weights, traced);
    const double loss = evaluate(traced.graph, traced.inputs).at("loss").values.front();
    REQUIRE(loss == Approx(read_golden(name).loss).epsilon(1e-12));
  };
  check("gpt2", small_gpt2(), false);
  check("llama", small_llama(), true);
  check("pax", small_pax(), true);
}

}  // namespace
}  // namespace tessera
