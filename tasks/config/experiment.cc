// SPDX-License-Identifier: Apache-2.0
#include "tasks/config/experiment.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/hparams/convert.h"

namespace tessera {
namespace {

void check_shape(std::string_view knob, const std::vector<int64_t>& shape,
                 const std::vector<std::string>& names) {
  if (!shape.empty() && shape.size() != names.size())
    fail("mesh.{} has {} sizes, expected one for each of the axes {}", knob, shape.size(),
         fmt::join(names, ", "));
}

std::vector<MeshAxis> configured_axes(const MeshConfig& config) {
  check_shape("ici_mesh_shape", config.ici_mesh_shape, config.axis_names);
  check_shape("dcn_mesh_shape", config.dcn_mesh_shape, config.axis_names);
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < config.axis_names.size(); ++i) {
    MeshAxis axis{config.axis_names[i], 1, 1};
    if (!config.ici_mesh_shape.empty()) axis.ici = config.ici_mesh_shape[i];
    if (!config.dcn_mesh_shape.empty()) axis.dcn = config.dcn_mesh_shape[i];
    axes.push_back(axis);
  }
  return axes;
}

// Without an ICI shape all devices of a slice go to `data`.
Mesh automatic_mesh(const MeshConfig& config, std::vector<MeshAxis> axes, int64_t devices) {
  const int64_t slices = Mesh(axes).num_devices();
  if (devices % slices != 0)
    fail(
        "mesh: {} devices cannot be shared out among {} slices (dcn_mesh_shape); the nearest "
        "number that can is {}",
        devices, slices, nearest_multiple(devices, slices));
  const auto data = std::find_if(axes.begin(), axes.end(),
                                 [](const MeshAxis& axis) { return axis.name == "data"; });
  if (data == axes.end() && devices != slices)
    fail("mesh: there is no axis 'data' for the {} devices; give --set mesh.ici_mesh_shape=[{}]",
         devices, fmt::join(shape_along_data(config.axis_names, devices / slices), ","));
  if (data != axes.end()) data->ici = devices / slices;
  return Mesh(std::move(axes));
}

// A shape for `devices` devices that resembles the mesh of one slice: inner axes keep their size if
// it divides, and the rest goes to the outer axes.
std::vector<int64_t> shape_for(const Mesh& mesh, int64_t devices) {
  std::vector<int64_t> shape(mesh.axes().size(), 1);
  for (size_t i = shape.size(); i-- > 0;) {
    shape[i] = std::gcd(mesh.axes()[i].ici, devices);
    devices /= shape[i];
  }
  const size_t rest = mesh.has("data") ? static_cast<size_t>(mesh.position("data")) : 0;
  shape[rest] *= devices;
  return shape;
}

// The knob sets the default axes. An experiment may build a mesh with other axes and ignore the
// knob; then the field of the configuration sets the shape.
std::string_view shape_path(const Mesh& mesh) {
  const auto has = [&](const char* axis) { return mesh.has(axis); };
  return mesh.axes().size() == 3 && has("replica") && has("data") && has("mdl")
             ? "ici_mesh_shape"
             : "mesh.ici_mesh_shape";
}

[[noreturn]] void refuse(const Mesh& mesh, const DevicesAtHand& devices) {
  const int64_t wanted = mesh.num_devices();
  const std::string there =
      devices.processes == 1
          ? fmt::format("there {} {}", devices.total() == 1 ? "is" : "are", devices.total())
          : fmt::format("{} processes of {} have {}", devices.processes, devices.per_process,
                        devices.total());
  const std::string more = wanted % devices.processes == 0
                               ? fmt::format("give --devices={}", wanted / devices.processes)
                               : fmt::format("start a number of processes that divides {}", wanted);
  const bool one_slice = std::all_of(mesh.axes().begin(), mesh.axes().end(),
                                     [](const MeshAxis& axis) { return axis.dcn == 1; });
  const std::string fewer = one_slice
                                ? fmt::format("--set {}=[{}]", shape_path(mesh),
                                              fmt::join(shape_for(mesh, devices.total()), ","))
                                : std::string("change mesh.ici_mesh_shape or mesh.dcn_mesh_shape");
  fail("mesh {} takes {} device{}, but {}; {}, or {}", mesh.text(), wanted, wanted == 1 ? "" : "s",
       there, more, fewer);
}

}  // namespace

std::vector<int64_t> shape_along_data(const std::vector<std::string>& axis_names, int64_t devices) {
  std::vector<int64_t> shape(axis_names.size(), 1);
  const auto data = std::find(axis_names.begin(), axis_names.end(), "data");
  if (!shape.empty())
    shape[data == axis_names.end() ? 0 : static_cast<size_t>(data - axis_names.begin())] = devices;
  return shape;
}

Mesh make_mesh(const MeshConfig& config, const DevicesAtHand& devices) {
  std::vector<MeshAxis> axes = configured_axes(config);
  if (config.ici_mesh_shape.empty())
    return automatic_mesh(config, std::move(axes), devices.total());
  Mesh mesh(std::move(axes));
  if (mesh.num_devices() != devices.total()) refuse(mesh, devices);
  return mesh;
}

Mesh planned_mesh(const MeshConfig& config, int64_t devices) {
  std::vector<MeshAxis> axes = configured_axes(config);
  if (config.ici_mesh_shape.empty()) return automatic_mesh(config, std::move(axes), devices);
  return Mesh(std::move(axes));
}

ExperimentConfig with_all_evals(ExperimentConfig config) {
  std::erase_if(config.eval.datasets, [&](const auto& entry) {
    const bool says_nothing = same_value(to_tree(entry.second), to_tree(EvalHParams{}));
    return says_nothing && !config.eval_inputs.contains(entry.first);
  });
  for (const auto& [name, unused] : config.eval_inputs) config.eval.datasets.try_emplace(name);
  return config;
}

ExperimentConfig Experiment::config() const {
  ExperimentConfig config = build();
  if (strategy.has()) config.rules = strategy_rules(strategy.get());
  return config;
}

}  // namespace tessera
