// SPDX-License-Identifier: Apache-2.0
// The op `copy`, which memory planning adds where one value must lie in two places: a state's next
// value that could not be written in place, a carry that is also saved. Never traced.
#include "core/graph/op.h"

namespace tessera {
namespace {

std::vector<Type> infer_copy(const InferContext& context) { return {context.inputs[0]}; }
double no_flops(const Graph&, const Node&) { return 0.0; }

const OpDef kCopy = {
    .name = "copy", .op_class = OpClass::kDataMovement, .infer = infer_copy, .flops = no_flops};
const OpRegistrar kRegisterCopy{kCopy};

}  // namespace
}  // namespace tessera
