// SPDX-License-Identifier: Apache-2.0
// The kinds of device that a run can compute on: "cpu", "reference", and those that plugins
// register. Registering only records: it happens while a shared library is being opened, where
// nothing may throw.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/devices/device.h"
#include "core/graph/graph.h"
#include "core/runtime/comm/communicator.h"

namespace tessera {

struct DeviceKind {
  // Makes `count` devices of this process, in the order of their numbers. They share `threads`
  // threads of the host (<= 0: as many as the process may use processors). `local_rank` processes
  // of the host have taken as many each before. Error if the machine lacks them. Null for a kind
  // that is only planned for.
  std::vector<std::unique_ptr<Device>> (*make_devices)(int64_t count, int threads, int local_rank);
  // Connects the devices of all processes of a run.
  std::unique_ptr<Communicator> (*make_communicator)(CommunicatorOptions options);
  // Returns what memory planning needs to know about the communicator's kernel for a node, before a
  // communicator exists.
  CollectiveNeeds (*collective_needs)(const Graph& graph, const Node& node);
  // Whether collectives within a process overlap compute too: they use no processors of compute.
  bool overlaps = false;
  bool has_all_numerics = false;  // Whether it computes by each Numerics; others: kStandard only.
};

// Registers a kind; it replaces an earlier one of the same name.
void register_device_kind(std::string_view name, const DeviceKind& kind);

// Returns the kinds that can make devices, in order of name.
std::vector<std::string> registered_device_kinds();

// Returns a kind; Error with the nearest name and all names if no such kind is registered.
const DeviceKind& find_device_kind(std::string_view name);

}  // namespace tessera
