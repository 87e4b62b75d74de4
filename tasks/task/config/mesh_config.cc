// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/config/mesh_config.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

std::vector<MeshAxis> configured_axes(const MeshConfig& config) {
  const std::vector<std::string>& names = config.axis_names;
  const auto sizes = [&](std::string_view knob, const std::vector<int64_t>& shape) {
    if (!shape.empty() && shape.size() != names.size())
      fail("mesh.{} has {} sizes, expected one for each of the axes {}", knob, shape.size(),
           fmt::join(names, ", "));
    return shape.empty() ? std::vector<int64_t>(names.size(), 1) : shape;
  };
  const std::vector<int64_t> ici = sizes("ici_mesh_shape", config.ici_mesh_shape);
  const std::vector<int64_t> dcn = sizes("dcn_mesh_shape", config.dcn_mesh_shape);
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < names.size(); ++i) axes.push_back({names[i], ici[i], dcn[i]});
  return axes;
}

// Without an ICI shape all devices of a slice go to `data`.
void assign_devices(const MeshConfig& config, int64_t devices, std::vector<MeshAxis>& axes) {
  const int64_t slices = Mesh(axes).num_devices();
  if (devices % slices != 0)
    fail(
        "mesh: {} devices cannot be divided among {} slices (dcn_mesh_shape); the nearest multiple "
        "is {}",
        devices, slices, nearest_multiple(devices, slices));
  const auto data = std::ranges::find(axes, "data", &MeshAxis::name);
  if (data == axes.end() && devices != slices)
    fail(
        "the mesh has no axis 'data' for the {} devices; give --set "
        "mesh.ici_mesh_shape=[{}]",
        devices, fmt::join(shape_along_data(config.axis_names, devices / slices), ","));
  if (data != axes.end()) data->ici = devices / slices;
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

[[noreturn]] void refuse(const Mesh& mesh, const AvailableDevices& devices) {
  const int64_t needed = mesh.num_devices();
  const std::string available =
      devices.processes == 1
          ? fmt::format("{} {} available", devices.total(), devices.total() == 1 ? "is" : "are")
          : fmt::format("{} processes with {} each have {}", devices.processes, devices.per_process,
                        devices.total());
  const std::string more = needed % devices.processes == 0
                               ? fmt::format("give --devices={}", needed / devices.processes)
                               : fmt::format("start a number of processes that divides {}", needed);
  const bool one_slice = std::ranges::all_of(
      mesh.axes(), [](int64_t dcn) { return dcn == 1; }, &MeshAxis::dcn);
  const std::string fewer = one_slice
                                ? fmt::format("--set {}=[{}]", shape_path(mesh),
                                              fmt::join(shape_for(mesh, devices.total()), ","))
                                : std::string("change mesh.ici_mesh_shape or mesh.dcn_mesh_shape");
  fail("mesh {} needs {} device{}, but {}; {}, or {}", mesh.text(), needed, needed == 1 ? "" : "s",
       available, more, fewer);
}

// Shapes with the slow links on the first axis that can have them; "" if no axis can.
std::string shapes_for(const Mesh& mesh, int64_t hosts) {
  std::vector<int64_t> ici, dcn;
  bool placed = false;
  for (const MeshAxis& axis : mesh.axes()) {
    const bool here = !placed && axis.size() % hosts == 0;
    dcn.push_back(here ? hosts : 1);
    ici.push_back(axis.size() / dcn.back());
    placed |= here;
  }
  if (!placed) return "";
  return fmt::format("ici_mesh_shape=[{}] and dcn_mesh_shape=[{}]", fmt::join(ici, ","),
                     fmt::join(dcn, ","));
}

}  // namespace

std::vector<int64_t> shape_along_data(const std::vector<std::string>& axis_names, int64_t devices) {
  std::vector<int64_t> shape(axis_names.size(), 1);
  const auto data = std::find(axis_names.begin(), axis_names.end(), "data");
  if (!shape.empty())
    shape[data == axis_names.end() ? 0 : static_cast<size_t>(data - axis_names.begin())] = devices;
  return shape;
}

Mesh make_mesh(const MeshConfig& config, const AvailableDevices& devices) {
  Mesh mesh = planned_mesh(config, devices.total());
  if (mesh.num_devices() != devices.total()) refuse(mesh, devices);
  return mesh;
}

Mesh planned_mesh(const MeshConfig& config, int64_t devices) {
  std::vector<MeshAxis> axes = configured_axes(config);
  if (config.ici_mesh_shape.empty()) assign_devices(config, devices, axes);
  return Mesh(std::move(axes));
}

std::vector<std::string> hosts_of_devices(const ProcessGroup& processes,
                                          int64_t devices_per_process) {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < processes.size(); ++rank)
    hosts.insert(hosts.end(), static_cast<size_t>(devices_per_process), processes.host(rank));
  return hosts;
}

std::string check_hosts(const Mesh& mesh, const std::vector<std::string>& host_of_device) {
  CHECK(static_cast<int64_t>(host_of_device.size()) == mesh.num_devices());
  const std::set<std::string> hosts(host_of_device.begin(), host_of_device.end());
  if (hosts.size() < 2) return "";
  const auto num_hosts = static_cast<int64_t>(hosts.size());
  int64_t slices = 1;
  for (const MeshAxis& axis : mesh.axes()) slices *= axis.dcn;
  const std::string shapes = shapes_for(mesh, num_hosts);
  if (slices == 1)
    return fmt::format(
        "note: the mesh {} is one slice, but its devices are on {} hosts ({}): links between hosts "
        "are assumed to be fast{}",
        mesh.text(), num_hosts, fmt::join(hosts, ", "),
        shapes.empty() ? "" : fmt::format("; set {} if they are slow", shapes));

  const int64_t in_slice = mesh.num_devices() / slices;
  std::vector<std::set<std::string>> hosts_of_slice(static_cast<size_t>(slices));
  std::map<std::string, std::set<int64_t>> slices_of_host;
  for (int64_t device = 0; device < mesh.num_devices(); ++device) {
    const std::string& host = host_of_device[static_cast<size_t>(device)];
    hosts_of_slice[static_cast<size_t>(device / in_slice)].insert(host);
    slices_of_host[host].insert(device / in_slice);
  }
  for (int64_t slice = 0; slice < slices; ++slice) {
    const std::set<std::string>& spread = hosts_of_slice[static_cast<size_t>(slice)];
    if (spread.size() == 1) continue;
    for (const std::string& host : spread)
      if (slices_of_host[host].size() > 1)
        fail(
            "slice {} of the mesh (devices {} to {}) is spread over the hosts {}, and host {} has "
            "other slices too: {} slices (dcn_mesh_shape) do not fit {} hosts; start the processes "
            "of each host consecutively (mpirun --map-by slot, srun --distribution=block){}",
            slice, slice * in_slice, (slice + 1) * in_slice - 1, fmt::join(spread, ", "), host,
            slices, num_hosts, shapes.empty() ? "" : ", or set " + shapes);
  }
  return "";
}

}  // namespace tessera
