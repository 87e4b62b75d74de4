// SPDX-License-Identifier: Apache-2.0
// A trial trace: ops applied to inputs given by the text of their types, on a mesh, for the
// result's type or the error's message.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/trace.h"

namespace tessera {

// A trace with the inputs x, y, z, … of these types, open while it lives.
class Trial {
 public:
  Trial(const Mesh& mesh, const std::vector<std::string>& types);

  const std::vector<Tensor>& inputs() const { return inputs_; }
  Graph& graph() { return graph_; }
  const Mesh& mesh() const { return mesh_; }

 private:
  Mesh mesh_;
  AxisRules rules_;
  Graph graph_;
  TraceScope scope_;
  std::vector<Tensor> inputs_;
};

using Application = std::function<Tensor(const std::vector<Tensor>&)>;

// "f32[…]", the type of the result, sizes left out; or the message of the Error without its source
// line.
std::string outcome(const Mesh& mesh, const std::vector<std::string>& types,
                    const Application& apply);

// Every legal layout of these axes on the mesh: each mesh axis unused, splitting one axis (in every
// order with others that do) or, where `partials` holds it, over a pending sum.
enum class Partials { kNone, kSums };
std::vector<Type> all_layouts(const Type& type, const Mesh& mesh, Partials partials);

// Every layout the cotangent of a value of this type may have: per mesh axis split as it is,
// replicated where it is partial, and replicated or a pending sum where it is replicated.
std::vector<Type> cotangent_layouts(const Type& type, const Mesh& mesh);

// The message of the Error `action` throws, or "no error".
std::string error_of(const std::function<void()>& action);

// `text` with each run of digits made '#': messages that differ in sizes alone become equal.
std::string without_numbers(const std::string& text);

}  // namespace tessera
