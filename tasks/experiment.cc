// SPDX-License-Identifier: Apache-2.0
#include "tasks/experiment.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {
namespace {

void check_shape(std::string_view knob, const std::vector<int64_t>& shape,
                 const std::vector<std::string>& names) {
  if (!shape.empty() && shape.size() != names.size())
    fail("mesh.{} has {} sizes, expected one for each of the axes {}", knob, shape.size(),
         fmt::join(names, ", "));
}

}  // namespace

Mesh make_mesh(const MeshConfig& config, int64_t devices) {
  check_shape("ici_mesh_shape", config.ici_mesh_shape, config.axis_names);
  check_shape("dcn_mesh_shape", config.dcn_mesh_shape, config.axis_names);
  const bool automatic = config.ici_mesh_shape.empty();
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < config.axis_names.size(); ++i) {
    MeshAxis axis{config.axis_names[i], 1, 1};
    if (!automatic) axis.ici = config.ici_mesh_shape[i];
    if (!config.dcn_mesh_shape.empty()) axis.dcn = config.dcn_mesh_shape[i];
    axes.push_back(axis);
  }
  if (automatic) {
    const int64_t slices = Mesh(axes).num_devices();
    if (devices % slices != 0)
      fail("mesh: {} devices cannot be shared out among {} slices (dcn_mesh_shape)", devices,
           slices);
    const auto data = std::find_if(axes.begin(), axes.end(),
                                   [](const MeshAxis& axis) { return axis.name == "data"; });
    if (data == axes.end() && devices != slices)
      fail("mesh: there is no axis 'data' for the {} devices; set mesh.ici_mesh_shape", devices);
    if (data != axes.end()) data->ici = devices / slices;
  }
  Mesh mesh(std::move(axes));
  if (mesh.num_devices() != devices)
    fail("mesh {} takes {} devices, but there are {}; change ici_mesh_shape or --devices",
         mesh.text(), mesh.num_devices(), devices);
  return mesh;
}

AxisRules make_rules(const RulesConfig& config) {
  return {parse_rules(config.weights), parse_rules(config.activations)};
}

}  // namespace tessera
