// SPDX-License-Identifier: Apache-2.0
// A trace for tests of type rules: applies ops to inputs given by the text of their types, and
// returns the result's type or the error message.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/trace.h"

namespace tessera {

// A trace with the inputs x, y, z, u, v, w, a, b, c of these types. It is open during its lifetime.
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

// The type of the result as "f32[…]" without sizes, or the message of the Error without its source
// line.
std::string outcome(const Mesh& mesh, const std::vector<std::string>& types,
                    const Application& apply);

// Every legal layout of these axes on the mesh. Each mesh axis is unused, shards one axis (in every
// order with other mesh axes that do) or, if it is in `partials`, has a pending sum.
enum class Partials { kNone, kSums };
std::vector<Type> all_layouts(const Type& type, const Mesh& mesh, Partials partials);

// Every possible layout of the cotangent of a value of this type. Per mesh axis: sharded where the
// value is sharded, replicated where it is partial, and replicated or a pending sum where it is
// replicated.
std::vector<Type> cotangent_layouts(const Type& type, const Mesh& mesh);

// `text` with each run of digits replaced by '#', so that messages that differ only in sizes are
// equal.
std::string without_numbers(const std::string& text);

}  // namespace tessera
