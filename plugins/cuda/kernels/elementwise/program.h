// SPDX-License-Identifier: Apache-2.0
// Elementwise nodes, generators and fused nodes as CUDA C++ text: one loop over the elements of the
// results, each operand read once, intermediate values in registers. A thread computes as many
// neighbours of the innermost axis as make 16 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/devices/iteration_space.h"
#include "core/graph/graph.h"

namespace tessera::cuda {

// How a tensor lies in the iteration space.
struct OperandLayout {
  size_t operand = 0;  // Its position among the node's operands or results.
  DType dtype = DType::kF32;
  Strides strides;
};

// The text has one function, `name`, whose parameters are the addresses of the inputs and then of
// the results. It needs a thread an item; each does several if there are fewer.
struct ElementwiseProgram {
  std::string name;  // "exp_f32", "fused_mul_add_bf16".
  std::string text;
  std::vector<OperandLayout> inputs, results;
  int64_t items = 0;
};

// Whether nodes of this op can be made a program.
bool has_program(const OpDef& op);

// Makes the program of a node with local types. Error, in terms of the user, for an op or dtype
// without device code.
ElementwiseProgram make_program(const Graph& graph, const Node& node);

}  // namespace tessera::cuda
