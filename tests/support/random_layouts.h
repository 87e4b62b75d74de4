// SPDX-License-Identifier: Apache-2.0
// Random programs in random layouts: ops picked blindly and applied to what is there. What the type
// rules accept becomes part of the program; what they refuse, they must refuse in words. For tests
// of typing, differentiation and lowering.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/backend/reference/interpreter.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/graph/trace.h"

namespace tessera {

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

// One program, drawn op by op on the mesh; open for tracing while it lives. Sizes of axes are
// multiples of four, so that up to four devices an axis refuse nothing for its size.
class RandomLayouts {
 public:
  RandomLayouts(uint64_t seed, const Mesh& mesh);

  Graph& graph() { return graph_; }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  // A digit a step: accepted or refused.
  const std::string& decisions() const { return decisions_; }
  // Differentiates the mean of everything that was made, and fetches the loss, each "gradient of
  // <input>", and what was made last.
  void differentiate();
  // Random numbers for all inputs.
  ReferenceInputs sample(uint64_t seed) const;

 private:
  // What one step draws.
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
