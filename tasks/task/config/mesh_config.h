// SPDX-License-Identifier: Apache-2.0
// The mesh of a run: its configured shape, the devices that there are, and the hosts that they are
// on. Fast links (ICI) are within hosts, slow links (DCN) between them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/mesh.h"
#include "core/hparams/fields.h"
#include "core/runtime/comm/process_group.h"

namespace tessera {

// The device mesh. Sizes are in the order of `axis_names`.
struct MeshConfig {
  static constexpr std::string_view kName = "Mesh";
  std::vector<std::string> axis_names = {"replica", "data", "mdl"};
  std::vector<int64_t> ici_mesh_shape;  // Empty: all available devices go to `data`.
  std::vector<int64_t> dcn_mesh_shape;  // Empty: one slice.
  FIELDS(axis_names, ici_mesh_shape, dcn_mesh_shape)
};

// The devices that a mesh can use.
struct AvailableDevices {
  AvailableDevices(int64_t per_process, int64_t processes = 1)
      : per_process(per_process), processes(processes) {}
  int64_t per_process;
  int64_t processes;
  int64_t total() const { return per_process * processes; }
};

// A mesh shape with all devices on `data`, or on the first axis if there is no `data`.
std::vector<int64_t> shape_along_data(const std::vector<std::string>& axis_names, int64_t devices);

// The mesh for these devices. Error, with fixes, if the shapes need another number of devices.
Mesh make_mesh(const MeshConfig& config, const AvailableDevices& devices);
// The mesh that the shapes describe, whether or not the devices exist; without a shape, as
// make_mesh.
Mesh planned_mesh(const MeshConfig& config, int64_t devices);

// The host name of each device of the run.
std::vector<std::string> hosts_of_devices(const ProcessGroup& processes,
                                          int64_t devices_per_process);

// Error if a slice spans hosts that hold parts of other slices too. Otherwise a remark, with better
// shapes, if the mesh uses slow links as if they were fast; or "".
std::string check_hosts(const Mesh& mesh, const std::vector<std::string>& host_of_device);

}  // namespace tessera
