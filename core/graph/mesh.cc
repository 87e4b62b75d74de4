// SPDX-License-Identifier: Apache-2.0
#include "core/graph/mesh.h"

#include <utility>

#include "core/base/error.h"

namespace tessera {

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  for (size_t i = 0; i < axes_.size(); ++i) {
    const MeshAxis& axis = axes_[i];
    if (axis.name.empty()) fail("mesh: axis {} has no name", i);
    if (axis.ici < 1 || axis.dcn < 1) {
      fail("mesh: axis '{}' has size {} (ICI) x {} (DCN); both must be at least 1", axis.name,
           axis.ici, axis.dcn);
    }
    for (size_t j = 0; j < i; ++j) {
      if (axes_[j].name == axis.name) fail("mesh: axis '{}' is named twice", axis.name);
    }
  }
}

Mesh Mesh::standard(const std::vector<int64_t>& ici, const std::vector<int64_t>& dcn) {
  const std::vector<std::string> names = {"replica", "data", "mdl"};
  if (ici.size() != names.size()) {
    fail("ici_mesh_shape has {} sizes, expected 3 (replica, data, mdl)", ici.size());
  }
  if (!dcn.empty() && dcn.size() != names.size()) {
    fail("dcn_mesh_shape has {} sizes, expected 3 (replica, data, mdl) or none", dcn.size());
  }
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < names.size(); ++i) {
    axes.push_back({names[i], ici[i], dcn.empty() ? 1 : dcn[i]});
  }
  return Mesh(std::move(axes));
}

bool Mesh::has(std::string_view name) const {
  for (const MeshAxis& axis : axes_) {
    if (axis.name == name) return true;
  }
  return false;
}

int64_t Mesh::position(std::string_view name) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == name) return static_cast<int64_t>(i);
    names.push_back(axes_[i].name);
  }
  fail("the mesh ({}) has no axis '{}'{}", axes_.empty() ? "no axes" : text(), name,
       did_you_mean(name, names));
}

int64_t Mesh::size(std::string_view name) const {
  return axes_[static_cast<size_t>(position(name))].size();
}

int64_t Mesh::num_devices() const {
  int64_t devices = 1;
  for (const MeshAxis& axis : axes_) devices *= axis.size();
  return devices;
}

std::string Mesh::text() const {
  std::string text;
  for (const MeshAxis& axis : axes_) {
    if (!text.empty()) text += ' ';
    text += fmt::format("{}={}", axis.name, axis.size());
  }
  return text;
}

}  // namespace tessera
