// SPDX-License-Identifier: Apache-2.0
// Muon against torch's, for each way in which weights are stored as matrices; where its matrices
// are on a mesh; which weights have another optimizer; and what is refused.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "tasks/task/learner/optimizers.h"
#include "tasks/testing/tested_optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/golden_noise.h"
#include "tests/support/optimizer_trial.h"
#include "tests/support/simulated_mesh.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// A case of tests/golden/muon.py.
struct MuonCase {
  std::string name, axes;
  FanAxes fans;
  Muon::HParams p;
  std::map<std::string, std::vector<double>> weights;  // After the last step, by the dtype.

  Type type() const { return parse_type(fmt::format("f32[\"{}\"]", axes)); }
};

struct MuonGolden {
  int64_t steps = 0;
  std::vector<MuonCase> cases;
};

std::string rest_of(std::istream& line) {
  std::string rest;
  std::getline(line >> std::ws, rest);
  return rest;
}

MuonGolden read_muon_golden() {
  std::ifstream file(fmt::format("{}/tests/golden/muon.txt", TESSERA_SOURCE_DIR));
  MuonGolden golden;
  Muon::HParams p;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "steps") words >> golden.steps;
    if (word == "rate") words >> p.learning_rate;
    if (word == "momentum") words >> p.momentum;
    if (word == "case") golden.cases.push_back({.name = rest_of(words), .p = p});
    if (golden.cases.empty()) continue;
    MuonCase& last = golden.cases.back();
    if (word == "axes") last.axes = rest_of(words);
    if (word == "in") last.fans.in = parse_names(rest_of(words));
    if (word == "out") last.fans.out = parse_names(rest_of(words));
    if (word == "settings") {
      std::string scale;
      words >> scale >> last.p.nesterov >> last.p.weight_decay;
      for (const MuonScale each : {MuonScale::kMatchRmsAdamw, MuonScale::kOriginal})
        if (enum_name(each) == scale) last.p.scale = each;
    }
    if (word != "bf16" && word != "f64") continue;
    size_t count = 0;
    words >> count;
    std::vector<double>& values = last.weights[word];
    values.resize(count);
    for (double& value : values) file >> value;
  }
  return golden;
}

std::vector<std::vector<double>> gradients_of(const MuonCase& row, int64_t steps) {
  std::vector<std::vector<double>> gradients;
  for (int64_t step = 0; step < steps; ++step)
    gradients.push_back(golden_noise(fmt::format("{} {}", row.name, step), row.type().elements()));
  return gradients;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

std::vector<double> trained_in_f64(const MuonCase& row, int64_t steps) {
  TestedOptimizer muon(row.p, {.type = row.type().text_sized(),
                               .weight = golden_noise(row.name, row.type().elements()),
                               .fans = row.fans});
  for (const auto& gradient : gradients_of(row, steps)) muon.step(gradient);
  return muon.weight();
}

TEST_CASE("Muon is torch's in f64, for tall, wide, stacked and fused matrices") {
  const MuonGolden golden = read_muon_golden();
  REQUIRE(golden.steps == 20);
  REQUIRE(golden.cases.size() == 9);
  for (const MuonCase& row : golden.cases) {
    INFO(row.name);
    REQUIRE(largest_difference(trained_in_f64(row, golden.steps), row.weights.at("f64")) < 1e-10);
  }
}

TEST_CASE("block_axes make each head a matrix") {
  const MuonGolden golden = read_muon_golden();
  MuonCase row = *std::ranges::find(golden.cases, "fused_heads", &MuonCase::name);
  row.fans.out = {"heads", "head_dim"};
  REQUIRE(largest_difference(trained_in_f64(row, golden.steps), row.weights.at("f64")) > 1e-3);
  row.p.block_axes = {"heads", "kv_heads"};
  REQUIRE(largest_difference(trained_in_f64(row, golden.steps), row.weights.at("f64")) < 1e-10);
}

std::vector<double> trained_in(const MuonCase& row, DType dtype, int64_t steps) {
  Muon::HParams p = row.p;
  p.dtype = dtype;
  OptimizerTrial trial{.optimizer_tpl = p,
                       .type = row.type(),
                       .parameter = golden_noise(row.name, row.type().elements()),
                       .weight_decay = p.weight_decay,
                       .learning_rate = p.learning_rate,
                       .fans = row.fans};
  trial.run(gradients_of(row, steps));
  return trial.parameter;
}

TEST_CASE("Muon is torch's in f32 and in bf16, within their roundings") {
  const MuonGolden golden = read_muon_golden();
  for (const MuonCase& row : golden.cases) {
    INFO(row.name);
    REQUIRE(largest_difference(trained_in(row, DType::kF32, golden.steps), row.weights.at("f64")) <
            1e-5);
    // A step moves an element by up to 0.02·1.2; its rounding errors are some hundredths of that,
    // and differ from torch's as much as torch's from f64.
    const std::vector<double>& torch = row.weights.at("bf16");
    const std::vector<double> ours = trained_in(row, DType::kBF16, golden.steps);
    REQUIRE(largest_difference(torch, row.weights.at("f64")) < 5e-3);
    REQUIRE(largest_difference(ours, torch) < 5e-3);
  }
}

TEST_CASE("Muon gives the layers of a stack the bits of layers of their own") {
  const MuonGolden golden = read_muon_golden();
  const MuonCase& stack = *std::ranges::find(golden.cases, "stack", &MuonCase::name);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto trained = [&](const std::string& axes, int64_t first, int64_t count) {
      MuonCase row = stack;
      row.p.dtype = dtype;
      const auto part = [&](const std::vector<double>& whole) {
        return std::vector<double>(whole.begin() + first, whole.begin() + first + count);
      };
      OptimizerTrial trial{.optimizer_tpl = row.p,
                           .type = parse_type(fmt::format("f32[\"{}\"]", axes)),
                           .parameter = part(golden_noise(row.name, row.type().elements())),
                           .fans = row.fans};
      std::vector<std::vector<double>> gradients;
      for (const auto& gradient : gradients_of(row, 3)) gradients.push_back(part(gradient));
      trial.run(gradients);
      return trial.parameter;
    };
    const int64_t layer = stack.type().elements() / 3;
    std::vector<double> unrolled;
    for (int64_t i = 0; i < 3; ++i)
      std::ranges::copy(trained("mlp=7 embed=4", i * layer, layer), std::back_inserter(unrolled));
    REQUIRE(trained(stack.axes, 0, 3 * layer) == unrolled);
  }
}

// One update on a mesh, by the lowered graphs of its devices, and on one device.
struct MeshUpdate {
  std::map<std::string, std::vector<double>> on_mesh, on_one;
};

MeshUpdate updated_on(const Mesh& mesh, const Type& type, const FanAxes& fans,
                      const BaseOptimizer& optimizer) {
  ReferenceInputs values = {{"w", golden_noise("w", type.elements())},
                            {"gradient", golden_noise("gradient", type.elements())}};
  const auto traced = [&](Graph& graph, const Mesh& on, const Type& stored) {
    const AxisRules rules;
    const TraceScope trace(graph, on, rules);
    const auto scalar = [](double value) { return constant(value, DType::kF32); };
    UpdateInputs inputs{.path = "w",
                        .parameter = input("w", InputKind::kParameter, stored),
                        .gradient = input("gradient", InputKind::kBatch, stored),
                        .gradient_scale = scalar(1.0),
                        .learning_rate = scalar(0.1),
                        .count = scalar(0.0),
                        .apply = less(scalar(0.0), scalar(1.0)),
                        .weight_decay = 0.1,
                        .matrix = fans};
    const std::vector<Slot> slots = checked_slots(optimizer, {"w", stored, fans});
    for (const auto& [name, slot] : slots) {
      inputs.slots.push_back(input(name, InputKind::kState, slot));
      const auto size = static_cast<size_t>(slot.elements());
      values[name] =
          name == "momentum" ? golden_noise(name, slot.elements()) : std::vector<double>(size, 0.0);
    }
    const Updated next = checked_update(optimizer, inputs);
    graph.add_update("w", next.parameter.id());
    for (size_t i = 0; i < slots.size(); ++i) graph.add_update(slots[i].name, next.slots[i].id());
  };
  Type whole = type;
  for (Axis& axis : whole.axes) axis.split.clear();
  Graph on_mesh, on_one;
  traced(on_mesh, mesh, type);
  traced(on_one, Mesh(), whole);
  MeshUpdate update{.on_mesh = SimulatedMesh(on_mesh, mesh).run(values)};
  for (const auto& [name, array] : evaluate(on_one, values)) update.on_one[name] = array.values;
  return update;
}

struct MeshRow {
  std::vector<MeshAxis> mesh;
  std::string stored;
  std::string whole;  // The layout in which the matrices are made orthogonal.
  FanAxes fans = {{"embed"}, {"mlp"}};
};

const FanAxes kByHeads{{"embed"}, {"heads", "head_dim"}};
const std::vector<MeshRow> kMeshRows = {
    {{{"data", 1}}, "layers=3 embed/data=8 mlp=4", "layers=3 embed=8 mlp=4"},
    {{{"data", 2}}, "embed/data=8 mlp=4", "embed=8 mlp=4"},
    {{{"data", 2}}, "embed=8 mlp/data=4", "embed=8 mlp=4"},
    {{{"data", 2}}, "layers=4 embed/data=8 mlp=4", "layers/data=4 embed=8 mlp=4"},
    {{{"data", 2}}, "layers=3 embed/data=8 mlp=4", "layers/data=4 embed=8 mlp=4"},
    {{{"data", 4}}, "layers=2 embed/data=8 mlp=4", "layers/data=4 embed=8 mlp=4"},
    {{{"data", 8}}, "layers=9 embed/data=8 mlp=4", "layers/data=16 embed=8 mlp=4"},
    {{{"data", 2}}, "layers/data=4 embed=6 mlp=4", "layers/data=4 embed=6 mlp=4"},
    {{{"mdl", 2}}, "layers=2 embed=6 mlp/mdl=4", "layers/mdl=2 embed=6 mlp=4"},
    {{{"data", 2}, {"mdl", 2}},
     "layers=4 embed/data=6 mlp/mdl=4",
     "layers/data/mdl=4 embed=6 mlp=4"},
    {{{"data", 2}, {"mdl", 2}},
     "layers=3 embed/data=6 mlp/mdl=4",
     "layers/data/mdl=4 embed=6 mlp=4"},
    {{{"data", 2}, {"mdl", 2}}, "embed/data=6 mlp/mdl=4", "embed=6 mlp=4"},
    {{{"data", 2}, {"mdl", 2}}, "embed=6 mlp/mdl/data=8", "embed=6 mlp=8"},
    {{{"data", 2}}, "experts=4 embed/data=6 mlp=4", "experts/data=4 embed=6 mlp=4"},
    {{{"data", 2}, {"mdl", 2}},
     "layers=3 experts/mdl=4 embed/data=6 mlp=4",
     "layers=3 experts/mdl/data=4 embed=6 mlp=4"},
    {{{"data", 3}, {"mdl", 2}},
     "layers=3 experts/mdl=4 embed/data=6 mlp=4",
     "layers/data=3 experts/mdl=4 embed=6 mlp=4"},
    {{{"data", 2}, {"mdl", 2}},
     "embed/data=6 qkv=3 heads/mdl=2 head_dim=4",
     "embed=6 qkv/data/mdl=4 heads=2 head_dim=4",
     kByHeads},
    {{{"data", 4}},
     "embed/data=8 qkv=3 heads=2 head_dim=3",
     "embed=8 qkv/data=4 heads=2 head_dim=3",
     kByHeads},
    {{{"replica", 2}, {"data", 2}}, "layers=2 embed/data=6 mlp=4", "layers/data=2 embed=6 mlp=4"},
    {{{"data", 2}, {"mdl", 3}},
     "layers=5 embed/data=6 mlp/mdl=3",
     "layers/data/mdl=6 embed=6 mlp=3"},
    {{{"stage", 2}, {"data", 2}},
     "layers/stage=4 embed/data=6 mlp=4",
     "layers/stage/data=4 embed=6 mlp=4"}};

TEST_CASE("updates of matrices are the same on twenty meshes, where devices share the matrices") {
  const Muon muon(Muon::HParams{.dtype = DType::kF32});
  const Shampoo shampoo(Shampoo::HParams{.damping = 0.1});
  for (const MeshRow& row : kMeshRows) {
    INFO(row.stored);
    const Mesh mesh(row.mesh);
    const Type type = parse_type(fmt::format("f32[\"{}\"]", row.stored));
    const MatrixAxes axes{row.fans.out, row.fans.in};
    REQUIRE(whole_matrices(type, axes, mesh).text_sized() == fmt::format("f32[\"{}\"]", row.whole));
    for (const BaseOptimizer* optimizer : std::vector<const BaseOptimizer*>{&muon, &shampoo}) {
      const MeshUpdate update = updated_on(mesh, type, row.fans, *optimizer);
      for (const auto& [name, values] : update.on_one)
        REQUIRE(largest_difference(update.on_mesh.at(name), values) < 1e-12);
    }
  }
  REQUIRE(kMeshRows.size() > 20);
}

TEST_CASE("layers in pieces of a pipeline keep their stages, and their matrices are repeated") {
  Mesh mesh({{"stage", 2}, {"data", 2}});
  mesh.divide_layers({1, 2});
  const Type type = parse_type("f32[\"layers/stage=3 embed/data=6 mlp=4\"]");
  REQUIRE(whole_matrices(type, {{"mlp"}, {"embed"}}, mesh).text_sized() ==
          "f32[\"layers/stage=3 embed=6 mlp=4\"]");
}

std::string refusal_of(const Muon::HParams& p, const Parameter& parameter) {
  try {
    Template<BaseOptimizer>(p).instantiate()->for_parameter(parameter);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Parameter declared_as(const std::string& axes, const FanAxes& fans = {}) {
  return {.path = "lm.w",
          .type = parse_type(fmt::format("f32[\"{}\"]", axes)),
          .init = {},
          .fans = fans};
}

TEST_CASE("what is not a matrix, a table or a head has Muon's other optimizer") {
  const Muon muon(Muon::HParams{});
  const auto is_other = [&](const Parameter& parameter) {
    return &muon.for_parameter(parameter) != &muon;
  };
  REQUIRE(!is_other(declared_as("embed=4 mlp=2")));
  REQUIRE(!is_other(declared_as("layers=3 embed=4 mlp=2")));
  REQUIRE(is_other(declared_as("embed=4")));
  REQUIRE(is_other(declared_as("kernel=4 heads=2", {{"kernel"}, {}})));
  REQUIRE(is_other(declared_as("vocab=4 embed=2")));
  REQUIRE(is_other(declared_as("embed=4 vocab=2", {{"embed"}, {"vocab"}})));
  Parameter stacked = declared_as("layers=3 embed=4"), bias = declared_as("heads=4 head_dim=2");
  stacked.stack = 3;
  bias.init = zeros();
  REQUIRE(is_other(stacked));
  REQUIRE(is_other(bias));
  bias.fans = {{"heads"}, {"head_dim"}};  // A matrix that starts at 0.
  REQUIRE(!is_other(bias));
}

TEST_CASE("Muon's other optimizer has its own learning rate and decay, and Muon's schedule") {
  const auto steps = [](const Template<BaseOptimizer>& optimizer_tpl) {
    TestedOptimizer tested(optimizer_tpl, {.weight = {1, 2, 3}, .num_train_steps = 4});
    for (int64_t step = 0; step < 4; ++step) tested.step({0.5, -1.0, 2.0});
    return tested.weight();
  };
  const Template<BaseSchedule> schedule = LinearRampupCosineDecay::HParams{.warmup_steps = 2};
  AdamW::HParams adam{.learning_rate = 0.5, .weight_decay = 0.3};
  const std::vector<double> got =
      steps(Muon::HParams{.learning_rate = 0.02, .schedule_tpl = schedule, .other_tpl = adam});
  adam.schedule_tpl = schedule;
  REQUIRE(largest_difference(got, steps(adam)) < 1e-12);
}

TEST_CASE("Muon refuses what it cannot update, by name, and settings that make no sense") {
  const Parameter matrix = declared_as("embed=4 mlp=2");
  REQUIRE(refusal_of({.other_tpl = {}}, matrix) == "");
  REQUIRE(refusal_of({.other_tpl = {}}, declared_as("embed=4")) ==
          "Muon: 'lm.w' is f32[\"embed=4\"], and no matrix for Muon (it has no axes of inputs and "
          "outputs, as a bias, a scale or a vector); set other_tpl to the optimizer of such "
          "weights, for example AdamW");
  REQUIRE(refusal_of({.other_tpl = {}}, declared_as("vocab=4 embed=2"))
              .find("excluded_axes has its axis vocab") != std::string::npos);
  REQUIRE(refusal_of({.block_axes = {"mlp"}}, matrix) ==
          "Muon: block_axes [mlp] leave no axis for the outputs of the matrices of 'lm.w', which "
          "are [mlp] by [embed]; leave one out");
  REQUIRE(refusal_of({.coefficients = {1.0, NAN, 2.0}}, matrix) ==
          "Muon: coefficients[1] is nan, expected a finite number (at most 3.4e38)");
  REQUIRE(refusal_of({.coefficients = {1.5}}, matrix) ==
          "Muon: coefficients are [1.5], expected three: those of X, X³ and X⁵");
  REQUIRE(refusal_of({.steps = 0}, matrix) == "Muon: steps is 0, expected at least 1");
  REQUIRE(refusal_of({.dtype = DType::kI32}, matrix) == "Muon: dtype is i32, expected bf16 or f32");
  const AdamW::HParams scheduled{.schedule_tpl = LinearRampupCosineDecay::HParams{}};
  REQUIRE(refusal_of({.other_tpl = scheduled}, matrix) ==
          "Muon: other_tpl has a schedule of its own, but the one of Muon applies to both; leave "
          "other_tpl.schedule_tpl a constant of 1");
  REQUIRE(refusal_of({.state = {.second_moment = DType::kBF16}}, matrix)
              .find("stores no such moment") != std::string::npos);
}

}  // namespace
}  // namespace tessera
