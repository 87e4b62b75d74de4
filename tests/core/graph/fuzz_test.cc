// SPDX-License-Identifier: Apache-2.0
// Random programs: ops picked blindly and applied to what is there. What the type rules accept must
// verify, differentiate and agree with finite differences; what they refuse, they refuse in words;
// and a mesh of one device decides as one of many.
#include <cmath>
#include <random>

#include "core/backend/reference/interpreter.h"
#include "core/graph/ops/einsum.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/gather.h"
#include "core/graph/ops/generator.h"
#include "core/graph/ops/layout.h"
#include "core/graph/ops/reduce.h"
#include "core/graph/ops/reshard.h"
#include "core/graph/ops/softmax.h"
#include "core/graph/verify.h"
#include "core/passes/autodiff.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

constexpr int kSteps = 30;
constexpr int kNumInputs = 4;
const std::vector<std::string> kNames = {"a", "b", "c", "d"};
// Every size stays a multiple of four, the devices of a mesh, so that no refusal is for its size.
const std::vector<int64_t> kSizes = {4, 8, 12, 4};

// Draws that depend on the seed alone, not on the library.
class Draws {
 public:
  explicit Draws(uint64_t seed) : engine_(seed) {}
  size_t below(size_t bound) { return static_cast<size_t>(engine_() % bound); }
  template <typename T>
  const T& of(const std::vector<T>& choices) {
    return choices[below(choices.size())];
  }
  double noise() { return static_cast<double>(engine_() % 2001) / 1000.0 - 1.0; }

 private:
  std::mt19937_64 engine_;
};

// One program, drawn op by op on the mesh.
class Program {
 public:
  Program(uint64_t seed, const Mesh& mesh)
      : draws_(seed), mesh_(mesh), scope_(graph_, mesh, rules_) {
    for (int i = 0; i < kNumInputs; ++i) add_input(i);
    ids_ = input("ids", InputKind::kBatch, parse_type("i32[\"n=4\"]"));
    for (int step = 0; step < kSteps; ++step) apply_one();
  }

  Graph& graph() { return graph_; }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  // A digit a step: accepted or refused.
  const std::string& decisions() const { return decisions_; }

  // Differentiates the mean of everything that was made, and fetches loss and gradients.
  void differentiate() {
    Tensor loss;
    for (const Tensor& value : pool_) {
      Tensor sum = reduce_sum(value);
      sum = reshard(sum, "");
      const double share = 1.0 / static_cast<double>(value.type().elements());
      loss = loss ? loss + scale(sum, share) : scale(sum, share);
    }
    const std::vector<Tensor> gradient = gradients(loss, inputs_);
    output("loss", loss);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      REQUIRE(gradient[i].type().text_sized() == inputs_[i].type().text_sized());
      output("gradient of " + graph_.describe(inputs_[i].id()), gradient[i]);
    }
  }

 private:
  void add_input(int i) {
    Type type;
    for (size_t axis = 0; axis < kNames.size(); ++axis) {
      if (draws_.below(2) == 0) type.axes.push_back({kNames[axis], kSizes[axis], {}});
    }
    const Type layout = draws_.of(all_layouts(type, mesh_, Partials::kNone));
    inputs_.push_back(input("x" + std::to_string(i), InputKind::kParameter, layout));
    pool_.push_back(inputs_.back());
  }

  std::string random_axis(const Tensor& x) {
    return x.type().rank() == 0 ? "a" : draws_.of(x.type().names());
  }

  void apply_one() {
    const size_t op = draws_.below(32);
    const Tensor x = draws_.of(pool_), y = draws_.of(pool_);
    const std::string axis = random_axis(x), other = draws_.of(kNames);
    const size_t choice = draws_.below(1000);
    const std::string error = error_of([&] {
      const Tensor made = apply(op, x, y, axis, other, choice);
      if (made.type().elements() <= 4096) pool_.push_back(made);
    });
    decisions_ += error == "no error" ? '1' : '0';
    if (error == "no error") return;
    INFO(error);
    REQUIRE(error.starts_with("tests/core/graph/fuzz_test.cc:"));
    REQUIRE(error.size() > 50);
  }

  Tensor apply(size_t op, const Tensor& x, const Tensor& y, const std::string& axis,
               const std::string& other, size_t choice) {
    switch (op) {
      case 0:
        return x + y;
      case 1:
        return x - y;
      case 2:
        return x * y;
      case 3:
        return x / (square(y) + 1.0);
      case 4:
        return scale(x, 0.5);
      case 5:
        return tanh(x);
      case 6:
        return gelu(x);
      case 7:
        return sin(neg(x));
      case 8:
        return exp(tanh(x));
      case 9:
        return scale(einsum(x, y, over(axis)), 0.1);
      case 10:
        return reduce_mean(x, axis);
      case 11:
        return rename(x, axis, other);
      case 12:
        return transpose(x, reversed_names(x));
      case 13:
        return broadcast(x, {{other, 4, {}}});
      case 14:
        return softmax(x, axis);
      case 15:
        return slice(x, axis, choice % 2 == 0 ? 0 : 4, choice % 2 == 0 ? 4 : 8);
      case 16:
        return pad(x, axis, 1, 3);
      case 17:
        return shift_right(x, axis, 0.0);
      case 18:
        return concat({x, y}, axis);
      case 19:
        return gather(x, ids_, axis);
      case 20:
        return where(is_early(x, axis), sigmoid(x), y);
      case 21:
        return mask(x, is_early(x, axis));
      case 22:
        return one_hot(ids_, {other, 4, {}}, DType::kF32) * x;
      case 23:
        return log(square(x) + 1.0) + rsqrt(square(x) + 1.0);
      case 24:
        return pow(exp(tanh(x)), tanh(y));
      case 25:
        return split_axis(x, axis, {other, 4, {}}, {"e", 4, {}});
      case 26:
        return merge_axes(x, axis, draws_.of(kNames), other);
      default: {
        const std::vector<Type> layouts = all_layouts(plain(x), mesh_, Partials::kSums);
        return reshard(x, layouts[choice % layouts.size()]);
      }
    }
  }

  // True in the first places of an axis: conditions of values would make kinks, where differences
  // measure no slope.
  static Tensor is_early(const Tensor& x, const std::string& axis) {
    const Axis along = x.has(axis) ? x.type().axis(axis) : Axis{axis, 4, {}};
    return less(iota(along), constant(2.0, DType::kI32));
  }

  static std::string reversed_names(const Tensor& x) {
    std::string names;
    for (const std::string& name : x.type().names()) names = name + " " + names;
    return names;
  }

  static Type plain(const Tensor& x) {
    Type type = x.type();
    type.partial = {};
    for (Axis& axis : type.axes) axis.split.clear();
    return type;
  }

  Draws draws_;
  Mesh mesh_;
  AxisRules rules_;
  Graph graph_;
  TraceScope scope_;
  std::vector<Tensor> inputs_, pool_;
  Tensor ids_;
  std::string decisions_;
};

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The loss's slope along a random direction, by central differences and by the gradients.
void check_slope(Program& program, const Mesh& mesh, uint64_t seed) {
  Draws draws(seed);
  ReferenceInputs centre, direction, ahead, behind;
  centre["ids"] = ahead["ids"] = behind["ids"] = {0, 3, 1, 1};
  constexpr double kStep = 1e-5;
  for (const Tensor& x : program.inputs()) {
    const std::string name = program.graph().describe(x.id());
    for (int64_t i = 0; i < x.type().elements(); ++i) {
      const double value = draws.noise(), slope = draws.noise();
      centre[name].push_back(value);
      direction[name].push_back(slope);
      ahead[name].push_back(value + kStep * slope);
      behind[name].push_back(value - kStep * slope);
    }
  }
  const auto loss = [&](const ReferenceInputs& inputs) {
    return evaluate(program.graph(), inputs, mesh).at("loss").values.front();
  };
  const double measured = (loss(ahead) - loss(behind)) / (2.0 * kStep);
  const auto results = evaluate(program.graph(), centre, mesh);
  double slope = 0.0;
  for (const auto& [name, values] : direction) {
    slope += dot(results.at("gradient of " + name).values, values);
  }
  // Central differences err by the third derivative times step² and by rounding over step.
  REQUIRE(slope == Approx(measured).epsilon(1e-6).margin(1e-6));
}

void run(uint64_t first_seed, uint64_t count) {
  const std::vector<Mesh> meshes = {Mesh({{"data", 2}, {"mdl", 2}}), Mesh({{"data", 4}}),
                                    Mesh({{"replica", 2}, {"data", 2}, {"mdl", 1}})};
  size_t accepted = 0, refused = 0;
  for (uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
    INFO("seed " << seed);
    const Mesh& mesh = meshes[seed % meshes.size()];
    Program program(seed, mesh);
    for (const char decision : program.decisions()) ++(decision == '1' ? accepted : refused);
    verify(program.graph(), mesh);
    program.differentiate();
    verify(program.graph(), mesh, "autodiff");
    check_slope(program, mesh, seed);
  }
  // Enough of both to mean something.
  REQUIRE(accepted * 4 > accepted + refused);
  REQUIRE(refused * 10 > accepted + refused);
}

TEST_CASE("Random programs verify and differentiate") { run(0, 60); }

TEST_CASE("Many random programs verify and differentiate", "[full]") { run(1000, 3000); }

TEST_CASE("A mesh of one device decides as a mesh of many") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const Program many(seed, Mesh({{"data", 2}, {"mdl", 2}}));
    const Program one(seed, Mesh({{"data", 1}, {"mdl", 1}}));
    REQUIRE(many.decisions() == one.decisions());
  }
}

}  // namespace
}  // namespace tessera
