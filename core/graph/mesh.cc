// SPDX-License-Identifier: Apache-2.0
#include "core/graph/mesh.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace tessera {

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  int64_t devices = 1;
  for (size_t i = 0; i < axes_.size(); ++i) {
    const MeshAxis& axis = axes_[i];
    if (axis.name.empty()) fail("mesh: axis {} has no name", i);
    if (axis.ici < 1 || axis.dcn < 1)
      fail("mesh: axis '{}' has size {} (ICI) x {} (DCN); both must be at least 1", axis.name,
           axis.ici, axis.dcn);
    for (const int64_t size : {axis.ici, axis.dcn}) {
      if (size > kMaxDevices / devices)
        fail("mesh: more than {} devices; axis '{}' has size {} (ICI) x {} (DCN)", kMaxDevices,
             axis.name, axis.ici, axis.dcn);
      devices *= size;
    }
    for (size_t j = 0; j < i; ++j)
      if (axes_[j].name == axis.name) fail("mesh: axis '{}' is named twice", axis.name);
  }
}

Mesh Mesh::standard(const std::vector<int64_t>& ici, const std::vector<int64_t>& dcn) {
  const std::vector<std::string> names = {"replica", "data", "mdl"};
  if (ici.size() != names.size())
    fail("ici_mesh_shape has {} sizes, expected 3 (replica, data, mdl)", ici.size());
  if (!dcn.empty() && dcn.size() != names.size())
    fail("dcn_mesh_shape has {} sizes, expected 3 (replica, data, mdl) or none", dcn.size());
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < names.size(); ++i) {
    axes.push_back({names[i], ici[i], dcn.empty() ? 1 : dcn[i]});
  }
  return Mesh(std::move(axes));
}

bool Mesh::has(std::string_view name) const {
  return std::ranges::any_of(axes_, [&](const MeshAxis& axis) { return axis.name == name; });
}

int64_t Mesh::position(std::string_view name) const {
  for (size_t i = 0; i < axes_.size(); ++i)
    if (axes_[i].name == name) return static_cast<int64_t>(i);
  fail("the mesh ({}) has no axis '{}'{}", axes_.empty() ? "no axes" : text(), name,
       did_you_mean(name, names()));
}

std::vector<std::string> Mesh::names() const {
  std::vector<std::string> names;
  for (const MeshAxis& axis : axes_) names.push_back(axis.name);
  return names;
}

int64_t Mesh::size(std::string_view name) const {
  return axes_[static_cast<size_t>(position(name))].size();
}

int64_t Mesh::num_devices() const {
  int64_t devices = 1;
  for (const MeshAxis& axis : axes_) devices *= axis.size();
  return devices;
}

std::vector<int64_t> Mesh::coordinates(int64_t device) const {
  CHECK(device >= 0 && device < num_devices(), "device {} of {}", device, num_devices());
  std::vector<int64_t> coordinates(axes_.size());
  for (size_t i = axes_.size(); i-- > 0; device /= axes_[i].ici)
    coordinates[i] = device % axes_[i].ici;
  for (size_t i = axes_.size(); i-- > 0; device /= axes_[i].dcn)
    coordinates[i] += device % axes_[i].dcn * axes_[i].ici;
  return coordinates;
}

int64_t Mesh::device(const std::vector<int64_t>& coordinates) const {
  CHECK(coordinates.size() == axes_.size());
  int64_t slice = 0, within = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    CHECK(coordinates[i] >= 0 && coordinates[i] < axes_[i].size());
    slice = slice * axes_[i].dcn + coordinates[i] / axes_[i].ici;
    within = within * axes_[i].ici + coordinates[i] % axes_[i].ici;
  }
  int64_t slice_devices = 1;
  for (const MeshAxis& axis : axes_) slice_devices *= axis.ici;
  return slice * slice_devices + within;
}

int64_t Mesh::index_along(int64_t device, const std::vector<std::string>& mesh_axes) const {
  const std::vector<int64_t> place = coordinates(device);
  int64_t index = 0;
  for (const std::string& name : mesh_axes)
    index = index * size(name) + place[static_cast<size_t>(position(name))];
  return index;
}

int64_t Mesh::size_along(const std::vector<std::string>& mesh_axes) const {
  int64_t product = 1;
  for (const std::string& name : mesh_axes) product *= size(name);
  return product;
}

std::vector<int64_t> Mesh::group(int64_t device, const std::vector<std::string>& mesh_axes) const {
  std::vector<int64_t> place = coordinates(device);
  std::vector<int64_t> devices;
  for (int64_t index = 0; index < size_along(mesh_axes); ++index) {
    int64_t rest = index;
    for (auto name = mesh_axes.rbegin(); name != mesh_axes.rend(); ++name) {
      place[static_cast<size_t>(position(*name))] = rest % size(*name);
      rest /= size(*name);
    }
    devices.push_back(this->device(place));
  }
  return devices;
}

int64_t Mesh::stages() const { return has(kStageAxis) ? size(kStageAxis) : 1; }

int64_t Mesh::stage_of(int64_t device) const {
  return has(kStageAxis) ? index_along(device, {std::string(kStageAxis)}) : 0;
}

void Mesh::divide_layers(std::vector<int64_t> layers_of_pieces) {
  layer_pieces_ = LayerPieces(std::move(layers_of_pieces), size(kStageAxis));
}

LayerPieces Mesh::layer_pieces_of(int64_t layers) const {
  if (layer_pieces_.empty()) return LayerPieces::equal(layers, stages());
  if (layer_pieces_.layers() != layers)
    fail("a stack has {} layers, but its pieces on the stages ({}) have {}", layers,
         layer_pieces_.text(), layer_pieces_.layers());
  return layer_pieces_;
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
