// SPDX-License-Identifier: Apache-2.0
// Checks that a mesh matches its hosts: fast links (ICI) within hosts, slow links (DCN) between
// them.
#pragma once

#include <string>
#include <vector>

#include "core/graph/mesh.h"
#include "core/runtime/comm/process_group.h"

namespace tessera {

// The host name of each device of the run.
std::vector<std::string> hosts_of_devices(const ProcessGroup& processes,
                                          int64_t devices_per_process);

// Error if a slice spans hosts that hold parts of other slices too. Otherwise a remark, with better
// shapes, if the mesh uses slow links as if they were fast; or "".
std::string check_hosts(const Mesh& mesh, const std::vector<std::string>& host_of_device);

}  // namespace tessera
