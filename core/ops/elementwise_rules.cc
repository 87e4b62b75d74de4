// SPDX-License-Identifier: Apache-2.0
#include "core/ops/elementwise_rules.h"

#include "core/graph/typing.h"

namespace tessera {

Types infer_linear(const InferContext& context) {
  refuse_maximum(context);
  return {context.inputs[0]};
}

Types infer_nonlinear(const InferContext& context) {
  refuse_partial(context);
  check_same_dtype(context);
  const Type result = make_type(context.inputs[0].dtype, aligned_axes(context));
  check_mesh_axes_once(context, result);
  return {result};
}

Types infer_nonlinear_floating(const InferContext& context) {
  check_floating(context);
  return infer_nonlinear(context);
}

Types infer_gradient(const InferContext& context) {
  refuse_partial(context, 0);
  const Partial partial = partial_of_product(context);
  check_floating(context);
  check_same_dtype(context);
  const Type result = {context.inputs[0].dtype, aligned_axes(context), partial};
  check_mesh_axes_once(context, result);
  return {result};
}

}  // namespace tessera
