// SPDX-License-Identifier: Apache-2.0
#include "tasks/config/mesh_hosts.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

int64_t num_slices(const Mesh& mesh) {
  int64_t slices = 1;
  for (const MeshAxis& axis : mesh.axes()) slices *= axis.dcn;
  return slices;
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
  const int64_t slices = num_slices(mesh);
  const std::string shapes = shapes_for(mesh, num_hosts);
  if (slices == 1)
    return fmt::format(
        "note: the mesh {} is one slice, but its devices are on {} hosts ({}): links between hosts "
        "are taken for fast ones{}",
        mesh.text(), num_hosts, fmt::join(hosts, ", "),
        shapes.empty() ? "" : fmt::format("; {} say which are not", shapes));

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
            "slice {} of the mesh (devices {} to {}) is spread over the hosts {}, and host {} "
            "holds "
            "other slices too: {} slices (dcn_mesh_shape) do not fit {} hosts; start the processes "
            "of a host one after the other (mpirun --map-by slot, srun --distribution=block){}",
            slice, slice * in_slice, (slice + 1) * in_slice - 1, fmt::join(spread, ", "), host,
            slices, num_hosts, shapes.empty() ? "" : ", or set " + shapes);
  }
  return "";
}

}  // namespace tessera
