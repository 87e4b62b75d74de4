// SPDX-License-Identifier: Apache-2.0
// Random programs with random layouts: random ops are applied to existing values. Ops that the type
// rules accept become part of the program; the others must be rejected with an Error. For tests of
// typing, differentiation and lowering.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/devices/reference/interpreter.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/graph/trace.h"

namespace tessera {

// Random draws that depend only on the seed, not on the standard library.
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

// One program, drawn op by op on the mesh. Its trace is open during its lifetime. Axis sizes are
// multiples of four, so no op is rejected for its size on up to four devices per mesh axis.
class RandomLayouts {
 public:
  RandomLayouts(uint64_t seed, const Mesh& mesh);

  Graph& graph() { return graph_; }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  // One digit per step: accepted or rejected.
  const std::string& decisions() const { return decisions_; }
  // Differentiates the mean of all values, and outputs the loss, each "gradient of <input>" and the
  // last value.
  void differentiate();
  // Random values for all inputs.
  ReferenceInputs sample(uint64_t seed) const;

 private:
  // The random choices of one step.
  struct Choice {
    size_t op = 0, number = 0;
    Tensor x, y;
    std::string axis, other;
  };

  void add_input(int i);
  void apply_one();
  Tensor apply(const Choice& choice);
  Tensor elementwise(const Choice& choice);
  Tensor structural(const Choice& choice);
  Tensor composite(const Choice& choice);

  Draws draws_;
  Mesh mesh_;
  AxisRules rules_;
  Graph graph_;
  TraceScope scope_;
  std::vector<Tensor> inputs_, pool_;
  Tensor ids_, step_;
  std::string decisions_;
};

}  // namespace tessera
