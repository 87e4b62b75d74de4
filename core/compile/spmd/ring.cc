// SPDX-License-Identifier: Apache-2.0
#include "core/compile/spmd/ring.h"

#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {

Ring::Ring(const Graph& graph, const Node& attention, const Mesh& mesh)
    : mesh_axes_(graph.type(attention.inputs[0]).axis("seq").split),
      size_(mesh.size_along(mesh_axes_)),
      is_gradient_(attention.op == &kAttentionGradOp) {
  // A type with one element for each device: this device's element is its number in the ring.
  const Type whole = make_type(DType::kI32, {{"ring", size_, mesh_axes_}});
  const Type local = make_type(DType::kI32, {{"ring", 1, {}}});
  const Tensor number = trace_op(kIotaOp, {}, {{key::kType, local}, {key::kAnchor, whole}}, {});
  number_ = reduce_sum(cast(number, DType::kF32), "ring");
}

Tensor Ring::sent(const Tensor& x, const Routes& routes) const {
  const Attributes attributes = {{key::kMeshAxes, mesh_axes_},
                                 {key::kRoutes, routes},
                                 {AttributeName<bool>{"gradient"}, is_gradient_}};
  return trace_op(kPermuteOp, {x}, attributes, {});
}

Tensor Ring::sent_on(const Tensor& x, int64_t places) const {
  Routes routes;
  for (int64_t i = 0; i < size_; ++i) routes.push_back((i + size_ + places) % size_);
  return sent(x, routes);
}

}  // namespace tessera
