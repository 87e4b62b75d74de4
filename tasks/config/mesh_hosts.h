// SPDX-License-Identifier: Apache-2.0
// Whether a mesh is laid on its hosts as its shapes say: the fast links (ICI) within hosts, the
// slow ones (DCN) between them.
#pragma once

#include <string>
#include <vector>

#include "core/graph/mesh.h"
#include "core/runtime/comm/process_group.h"

namespace tessera {

// The host of each device of the run.
std::vector<std::string> hosts_of_devices(const ProcessGroup& processes,
                                          int64_t devices_per_process);

// Error if a slice is spread over hosts that hold parts of others too. Otherwise a remark if the
// mesh takes slow links for fast ones, with the shapes that would not; or "".
std::string check_hosts(const Mesh& mesh, const std::vector<std::string>& host_of_device);

}  // namespace tessera
