// SPDX-License-Identifier: Apache-2.0
// Tensor: what layers compute with. A handle to a value of the graph being traced. Arithmetic
// operators are in core/ops/elementwise.h.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/graph/graph.h"

namespace tessera {

class Tensor {
 public:
  Tensor() = default;  // Invalid.
  Tensor(Graph* graph, ValueId id) : graph_(graph), id_(id) {}

  bool valid() const { return graph_ != nullptr; }
  explicit operator bool() const { return valid(); }
  Graph* graph() const { return graph_; }
  ValueId id() const { return id_; }
  const Type& type() const { return graph_->type(id_); }
  DType dtype() const { return type().dtype; }
  int64_t size(std::string_view axis) const { return type().axis(axis).size; }
  bool has(std::string_view axis) const { return type().has(axis); }

  // Names the value, for messages and dumps; returns itself.
  const Tensor& named(std::string_view name) const;

 private:
  Graph* graph_ = nullptr;
  ValueId id_;
};

// An operand and the source line that passed it. Ops take their first operand as an Operand, which
// gives graph nodes and errors their line without macros.
struct Operand {
  Operand(const Tensor& value,  // NOLINT(google-explicit-constructor): on purpose.
          std::source_location where = std::source_location::current())
      : tensor(value), site(SourceSite::current(where)) {}
  Operand(const Tensor& value, SourceSite where) : tensor(value), site(where) {}
  Tensor tensor;
  SourceSite site;
};

}  // namespace tessera
