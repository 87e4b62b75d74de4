// SPDX-License-Identifier: Apache-2.0
// Random numbers of the reference interpreter: the very formulas of core/base/random.h.
#include "core/base/random.h"

#include "core/backend/reference/primitives.h"

namespace tessera {
namespace {

// Operands: step, then the loop index and the number of the first example, where the attributes
// "loop" and "part" say so (core/graph/ops/random.cc).
std::vector<double> run_random_uniform(const ReferenceCall& call) {
  const Attributes& attributes = call.node.attributes;
  size_t operand = 0;
  const auto next = [&] { return static_cast<int64_t>(call.input(operand++).values.front()); };
  const int64_t step = next();
  const int64_t layer =
      attributes.get<int64_t>("loop") != 0 ? next() : attributes.get<int64_t>("layer");
  const int64_t stride = attributes.get<int64_t>("part");
  const int64_t first = stride != 0 ? next() : 0;
  const uint64_t key = random_key(static_cast<uint64_t>(attributes.get<int64_t>("seed")),
                                  attributes.get<std::string>("stream"), layer);
  const int64_t count = call.type.elements();
  const int64_t width = stride == 0 ? count : count / call.type.axes.front().size;
  std::vector<double> result;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t element = (first + i / width * stride) * width + i % width;
    const PhiloxBlock block =
        philox(key, static_cast<uint64_t>(element / 4), static_cast<uint64_t>(step));
    result.push_back(uniform_from_bits(block[static_cast<size_t>(element % 4)]));
  }
  return result;
}

const ReferenceOp kOps[] = {{"random_uniform", run_random_uniform}};

}  // namespace

std::span<const ReferenceOp> reference_random() { return kOps; }

}  // namespace tessera
