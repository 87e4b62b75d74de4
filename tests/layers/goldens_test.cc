// SPDX-License-Identifier: Apache-2.0
// Whole models against an independent implementation: tests/golden/models.py writes the loss and
// every gradient of four small models, for weights and batches from formulas that this file
// repeats.
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>

#include "core/base/error.h"
#include "core/check/run_graph.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/devices/reference/interpreter.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/hparams/tree.h"
#include "core/ops/elementwise.h"
#include "layers/fprop_scope.h"
#include "layers/models/base_model.h"
#include "tests/support/catch.h"
#include "tests/support/golden_noise.h"
#include "tests/support/golden_text.h"
#include "tests/support/layer_trial.h"
#include "tests/support/reference_models.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

constexpr int64_t kBatch = SmallSizes::kBatch, kSeq = SmallSizes::kSeq;

// A weight's values by models.py's rules: vectors small, scales about 1 where they multiply
// directly, matrices larger. An attention bias counts as a matrix.
std::vector<double> weight_values(const Parameter& parameter) {
  const bool vector = parameter.type.rank() == 1;
  const double amplitude = vector ? 0.25 : 1.5 / std::sqrt(double{SmallSizes::kEmbed});
  const double centre = parameter.init.kind == InitKind::kConstant ? parameter.init.scale : 0.0;
  std::vector<double> values = golden_noise(parameter.path, parameter.type.elements());
  for (double& value : values) value = centre + amplitude * value;
  return values;
}

ReferenceInputs token_batch() {
  const auto tokens = [](std::string_view name) {
    std::vector<double> ids = golden_noise(name, kBatch * kSeq);
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
  std::map<std::string, double> metrics;  // By name, with the path of the layer.
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
    } else if (word == "metric") {
      file >> word;
      file >> golden.metrics[word];
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

// A model's loss and gradients traced, with the inputs they read.
struct Traced {
  Graph graph;
  ReferenceInputs inputs;
};

void trace_step(const LanguageModel::HParams& p, bool with_weights, Traced& traced) {
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
  const ModelOutput result = model(features);
  const Tensor loss = result.loss.sum / result.loss.weight;
  output("loss", loss);
  for (const auto& [name, metric] : result.metrics)
    if (name.find("mtp_log_pplx") != name.npos) output(name, metric.sum / metric.weight);
  const std::vector<Tensor> slopes = gradients(loss, parameters);
  for (size_t i = 0; i < slopes.size(); ++i)
    output(model.parameters().parameters()[i].path, slopes[i]);
}

double norm_of(const std::vector<double>& values) {
  double square = 0.0;
  for (const double value : values) square += value * value;
  return std::sqrt(square);
}

// The norm of a gradient's error, relative to the gradient's norm. (A key bias shifts all scores of
// a query equally, so its gradient is zero up to rounding: errors below `slack` are ignored.)
double relative_error(const std::vector<double>& got, const std::vector<double>& expected,
                      double slack) {
  REQUIRE(got.size() == expected.size());
  std::vector<double> difference;
  for (size_t i = 0; i < got.size(); ++i) difference.push_back(got[i] - expected[i]);
  return std::max(norm_of(difference) - slack, 0.0) / std::max(norm_of(expected), 1e-9);
}

struct Model {
  std::string name;
  LanguageModel::HParams hparams;
  bool with_weights;
};

std::vector<Model> models() {
  return {{"gpt2", small_gpt2(), false},
          {"llama", small_llama(), true},
          {"pax", small_pax(), true},
          {"mtp", small_mtp(), true}};
}

TEST_CASE("models compute the losses and gradients of an independent implementation") {
  for (const Model& model : models()) {
    INFO(model.name);
    Traced traced;
    trace_step(model.hparams, model.with_weights, traced);
    verify(traced.graph, Mesh());
    const auto outputs = evaluate(traced.graph, traced.inputs);
    const Golden golden = read_golden(model.name);
    REQUIRE(outputs.at("loss").values.front() == Approx(golden.loss).epsilon(1e-12));
    REQUIRE(outputs.size() == golden.gradients.size() + golden.metrics.size() + 1);
    for (const auto& [name, expected] : golden.metrics)
      REQUIRE(outputs.at(name).values.front() == Approx(expected).epsilon(1e-12));
    for (const auto& [path, expected] : golden.gradients) {
      INFO(path);
      // The golden file has seven digits.
      REQUIRE(relative_error(outputs.at(path).values, expected, 1e-9) < 1e-6);
    }
  }
}

// Runs all passes and the CPU's kernels, in f32.
TEST_CASE("models in f32 on the CPU compute the goldens, under every remat policy") {
  const auto device = make_test_device(2);
  for (const Model& model : models()) {
    Traced traced;
    trace_step(model.hparams, model.with_weights, traced);
    const Golden golden = read_golden(model.name);
    for (const std::string remat :
         {"save_everything", "save_nothing", "save_context_and_out_proj"}) {
      INFO(model.name << " " << remat);
      CompileOptions options;
      options.remat = parse_remat_policy(remat);
      options.verify_passes = true;
      const auto outputs = run_graph(traced.graph, traced.inputs, *device, options);
      REQUIRE(outputs.at("loss").front() == Approx(golden.loss).epsilon(1e-6));
      for (const auto& [path, expected] : golden.gradients) {
        INFO(path);
        REQUIRE(relative_error(outputs.at(path), expected, 1e-6) < 1e-4);
      }
    }
  }
}

// bf16 has eight significant bits: the relative error of a product is up to 2^-9, of a sum less;
// gradients pass through about twenty operations.
TEST_CASE("models that compute in bf16 are close to the goldens") {
  const auto device = make_test_device(2);
  for (Model model : models()) {
    model.hparams.lm_tpl.as<TransformerLm::HParams>().dtypes = DTypePolicy{.compute = DType::kBF16};
    Traced traced;
    trace_step(model.hparams, model.with_weights, traced);
    const Golden golden = read_golden(model.name);
    const auto outputs = run_graph(traced.graph, traced.inputs, *device);
    INFO(model.name);
    REQUIRE(outputs.at("loss").front() == Approx(golden.loss).epsilon(5e-3));
    for (const auto& [path, expected] : golden.gradients) {
      INFO(path);
      REQUIRE(relative_error(outputs.at(path), expected, 2e-3) < 1e-1);
    }
  }
}

// The configuration of known models, field by field, and their weights: a change of any default
// shows as a diff of tests/golden/models/.

// "path = value" for every field that holds one; for a template, its class.
void append_fields(const Tree& tree, const std::string& path, std::string& text) {
  if (!tree.is_table()) {
    if (tree.is_set()) text += fmt::format("{} = {}\n", path, tree.value_text());
    return;
  }
  if (tree.is_template) text += fmt::format("{} = {}\n", path, tree.class_name);
  for (size_t i = 0; i < tree.keys.size(); ++i)
    append_fields(tree.items[i], join_path(path, tree.keys[i]), text);
}

struct Described {
  std::string text;
  int64_t elements = 0;
};

Described described(const LanguageModel::HParams& p) {
  const Template<BaseModel> model_tpl = p;
  Described result;
  append_fields(resolved(model_tpl.to_tree()), "model", result.text);
  const std::unique_ptr<BaseModel> model = model_tpl.instantiate();
  result.elements = model->parameters().elements();
  result.text += "\n";
  for (const std::string& line : weight_list(model->parameters())) result.text += line + "\n";
  result.text += fmt::format("\n{} weights\n", result.elements);
  return result;
}

TEST_CASE("known models have the published number of weights") {
  REQUIRE(described(gpt2_124m()).elements == 124439808);
  REQUIRE(described(llama2_7b()).elements == 6738415616);
  REQUIRE(described(seqax_84m()).elements == 100672000);  // 83.9M, and a second embedding table.
  REQUIRE(described(c4_spmd_1b()).elements == Approx(1.10e9).epsilon(5e-3));
}

TEST_CASE("the configurations of known models have not changed") {
  REQUIRE(golden_difference("models/gpt2_124m.txt", described(gpt2_124m()).text) == "");
  REQUIRE(golden_difference("models/llama2_7b.txt", described(llama2_7b()).text) == "");
  REQUIRE(golden_difference("models/seqax_84m.txt", described(seqax_84m()).text) == "");
  REQUIRE(golden_difference("models/c4_spmd_1b.txt", described(c4_spmd_1b()).text) == "");
}

}  // namespace

}  // namespace tessera
