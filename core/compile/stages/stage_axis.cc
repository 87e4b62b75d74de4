// SPDX-License-Identifier: Apache-2.0
#include "core/compile/stages/stage_axis.h"

#include <string>
#include <vector>

#include "core/graph/layer_pieces.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

bool is_over_stage(const Node& node) {
  using Names = std::vector<std::string>;
  return node.attributes.get_or<Names>("mesh_axes", {}) == Names{std::string(kStageAxis)};
}

}  // namespace

bool is_stage_gather(const Node& node) { return node.op == &kAllGatherOp && is_over_stage(node); }

bool is_stage_slice(const Node& node) { return node.op == &kSliceOp && is_over_stage(node); }

}  // namespace tessera
