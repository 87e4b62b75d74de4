// SPDX-License-Identifier: Apache-2.0
// The op `fused` (see fuse.h): its types are its body's. Never traced.
#include "core/base/error.h"
#include "core/graph/op.h"

namespace tessera {
namespace {

std::vector<Type> infer_fused(const InferContext& context) {
  const Graph& body = *context.bodies[0];
  CHECK(body.inputs().size() == context.inputs.size());
  for (size_t i = 0; i < context.inputs.size(); ++i)
    CHECK(body.type(body.inputs()[i].value) == context.inputs[i], "operand {} of a fused node", i);
  std::vector<Type> types;
  for (const GraphOutput& output : body.outputs()) types.push_back(body.type(output.value));
  return types;
}

const OpDef kFused = {.name = "fused", .op_class = OpClass::kElementwise, .infer = infer_fused};
const OpRegistrar kRegisterFusedOp{kFused};

}  // namespace
}  // namespace tessera
