// SPDX-License-Identifier: Apache-2.0
#include "core/ops/rounding.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/op_helpers.h"
#include "core/ops/random.h"

namespace tessera {
namespace {

Types infer_stochastic_round(const InferContext& context) {
  refuse_partial(context);
  check_dtype(context, 0, DType::kF32);
  check_dtype(context, 1, DType::kF32);
  check_same_axes(context, 1, {});
  Type type = context.inputs[0];
  type.dtype = DType::kBF16;
  return {type};
}

}  // namespace

// Cost: ten rounds of Philox for four elements, and the rounding.
const Op kStochasticRoundOp{{.name = "stochastic_round",
                             .infer = infer_stochastic_round,
                             .flops = flops_per_element<20>,
                             .anchor = ShardAnchor::kFirstOperand}};

Attributes noise_attributes(const Type& type, std::string_view stream) {
  const StreamPath path = stream_path(traced_path());
  return {{key::kSeed, static_cast<uint64_t>(trace_state().seed)},
          {key::kStream, fmt::format("rounding{} of {}", stream, path.path)},
          {key::kFirst, std::max<int64_t>(path.layer, 0) * type.elements()}};
}

bool rounds_stochastically(const Node& node) {
  return node.attributes.has(key::kFirst) && node.attributes.has(key::kStream);
}

Tensor stochastic_round(Operand x, Operand count, const Noise& noise) {
  Attributes attributes = noise_attributes(x.tensor.type(), noise.stream);
  attributes.set(key::kHalf, noise.half);
  return trace_op(kStochasticRoundOp, {x.tensor, count.tensor}, attributes, x.site);
}

}  // namespace tessera
