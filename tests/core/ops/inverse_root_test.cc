// SPDX-License-Identifier: Apache-2.0
// The values of inverse_root against matrices whose roots are known, its type rule and its cost.
#include "core/ops/inverse_root.h"

#include <algorithm>
#include <cmath>

#include "core/devices/cpu/device.h"
#include "core/devices/reference/array.h"
#include "core/devices/reference/interpreter.h"
#include "core/graph/op.h"
#include "core/runtime/executor/executor.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

constexpr int64_t kSize = 7;

// The symmetric matrix of these eigenvalues whose eigenvectors are the columns of I - 2vv^T/(v^Tv).
std::vector<double> matrix_of(const std::vector<double>& eigenvalues) {
  const auto v = [](int64_t i) { return 1.0 + 0.3 * static_cast<double>(i); };
  double squares = 0.0;
  for (int64_t i = 0; i < kSize; ++i) squares += v(i) * v(i);
  const auto vector = [&](int64_t i, int64_t k) {
    return (i == k ? 1.0 : 0.0) - 2.0 * v(i) * v(k) / squares;
  };
  std::vector<double> matrix(kSize * kSize);
  for (int64_t i = 0; i < kSize; ++i)
    for (int64_t j = 0; j < kSize; ++j)
      for (int64_t k = 0; k < kSize; ++k)
        matrix[static_cast<size_t>(i * kSize + j)] +=
            vector(i, k) * eigenvalues[static_cast<size_t>(k)] * vector(j, k);
  return matrix;
}

double largest_row(const std::vector<double>& matrix) {
  double largest = 0.0;
  for (int64_t i = 0; i < kSize; ++i) {
    double sum = 0.0;
    for (int64_t j = 0; j < kSize; ++j) sum += std::abs(matrix[static_cast<size_t>(i * kSize + j)]);
    largest = std::max(largest, sum);
  }
  return largest;
}

// The root on a CPU, in f32.
std::vector<double> root_on_cpu(const std::vector<double>& matrix, const Graph& graph) {
  const std::unique_ptr<Device> device = make_cpu_device(1);
  Executor executor(*device);
  const int program = executor.add_program(graph, {});
  executor.allocate();
  std::vector<std::byte> bytes(matrix.size() * sizeof(float));
  encode_values(DType::kF32, matrix, bytes.data());
  executor.write_input(program, "x", bytes);
  executor.run(program);
  executor.read_output(program, "root", bytes);
  return decode_values(graph.type(graph.find_output("root")->value), bytes.data());
}

// The largest error of the root of a matrix, relative to the largest element of the exact one.
double error_of(double condition, const InverseRootOptions& options, DType dtype) {
  std::vector<double> eigenvalues, roots;
  for (int64_t i = 0; i < kSize; ++i)
    eigenvalues.push_back(3.0 * std::pow(condition, -static_cast<double>(i) / (kSize - 1)));
  const std::vector<double> matrix = matrix_of(eigenvalues);
  const double added = options.epsilon + options.damping * (largest_row(matrix) + options.epsilon);
  for (const double each : eigenvalues)
    roots.push_back(std::pow(each + added, -1.0 / static_cast<double>(options.root)));
  const std::vector<double> expected = matrix_of(roots);

  Trial trial(Mesh(), {"f32[\"row=7 column=7\"]"});
  trial.graph().add_output("root", inverse_root(trial.inputs()[0], "row", "column", options).id());
  const std::vector<double> got = dtype == DType::kF32
                                      ? root_on_cpu(matrix, trial.graph())
                                      : evaluate(trial.graph(), {{"x", matrix}}).at("root").values;
  double error = 0.0, largest = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    error = std::max(error, std::abs(got[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return error / largest;
}

TEST_CASE("inverse roots are exact up to rounding errors in proportion to the condition number") {
  for (const int64_t root : {2, 4})
    for (const double condition : {1.0, 1e2, 1e4, 1e6}) {
      CAPTURE(root, condition);
      REQUIRE(error_of(condition, {.root = root}, DType::kF64) < 1e-14 + 2e-16 * condition);
      REQUIRE(error_of(condition, {.root = root}, DType::kF32) < 1e-6 + 1e-7 * condition);
      REQUIRE(error_of(condition, {.root = root, .damping = 0.1}, DType::kF64) < 1e-13);
      REQUIRE(error_of(condition, {.root = root, .epsilon = 0.1}, DType::kF32) < 2e-5);
    }
}

TEST_CASE("the root of a matrix of zeros is that of epsilon, and scales cancel") {
  Trial trial(Mesh(), {"f32[\"n=2 row=2 column=2\"]"});
  trial.graph().add_output("root", inverse_root(trial.inputs()[0], "row", "column").id());
  const std::vector<double> got = root_on_cpu({0, 0, 0, 0, 1e-20, 0, 0, 1e-20}, trial.graph());
  REQUIRE(got[0] == Approx(std::pow(1e-30, -0.25)).epsilon(1e-5));
  REQUIRE(got[1] == 0.0);
  REQUIRE(got[4] == Approx(1e5).epsilon(1e-5));
}

const Mesh kTwoByTwo({{"data", 2}, {"mdl", 2}});

std::string root_outcome(const std::string& type, const InverseRootOptions& options = {}) {
  return outcome(kTwoByTwo, {type}, [&](const std::vector<Tensor>& in) {
    return inverse_root(in[0], "a", "b", options);
  });
}

TEST_CASE("inverse_root takes whole square matrices, numbered by axes that may be split") {
  REQUIRE(root_outcome("f32[\"layers/data=4 a=3 b=3\"]") == "f32[\"layers/data a b\"]");
  REQUIRE(root_outcome("bf16[\"a=3 n=2 b=3\"]") == "bf16[\"a n b\"]");
  REQUIRE(root_outcome("f32[\"a/data=4 b=4\"]").find("data") != std::string::npos);
  REQUIRE(root_outcome("f32[\"a=4 b=4\" + sum(data)]").find("x is partial") != std::string::npos);
  REQUIRE(root_outcome("i32[\"a=4 b=4\"]").find("inverse_root") != std::string::npos);
  REQUIRE(root_outcome("f32[\"a=4 b=3\"]") ==
          "inverse_root: matrices are a=4 by b=3, expected two axes of one size");
  REQUIRE(root_outcome("f32[\"a=4 b=4\"]", {.root = 3}) ==
          "inverse_root: root is 3, expected 2 or 4");
  for (const double wrong : {0.0, -1.0, std::nan("")}) {
    REQUIRE(root_outcome("f32[\"a=4 b=4\"]", {.damping = wrong}).find("expected a positive") !=
            std::string::npos);
    REQUIRE(root_outcome("f32[\"a=4 b=4\"]", {.epsilon = wrong}).find("expected a positive") !=
            std::string::npos);
  }
}

TEST_CASE("inverse_root counts its products, of as many iterations as the damping needs") {
  const auto flops = [](const InverseRootOptions& options) {
    Trial trial(Mesh(), {"f32[\"layers=3 a=4 b=4\"]"});
    const Tensor y = inverse_root(trial.inputs()[0], "a", "b", options);
    const Node& node = trial.graph().node(trial.graph().value(y.id()).producer);
    return node.op->flops(trial.graph(), node);
  };
  const double product = 3 * 2.0 * 4 * 4 * 4;
  REQUIRE(flops({.root = 4}) == 20 * 4 * product);
  REQUIRE(flops({.root = 2}) == 22 * 3 * product);
  REQUIRE(flops({.root = 4, .damping = 0.1}) == 7 * 4 * product);
}

}  // namespace
}  // namespace tessera
