// SPDX-License-Identifier: Apache-2.0
// One collective run by all devices of a mesh, which are threads of one test however many
// "processes" they are spread over; and what it should give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/graph/type.h"
#include "core/runtime/comm/communicator.h"

namespace tessera {

using Bytes = std::vector<std::byte>;

// A collective over some mesh axes; every device has an operand of this type.
struct CommunicatorTrial {
  Mesh mesh;
  std::vector<std::string> mesh_axes;
  std::string op;
  Type in;
  Attributes attributes = {};  // axis, split_axis, concat_axis, reduction.
  int64_t shift = 1;           // Of a permute: by how many places of the group.
  bool in_place = false;

  std::string text() const;
  Type out() const;
};

// Communicators that join the devices of a run of this many processes.
std::vector<std::unique_ptr<Communicator>> make_communicators(
    int64_t devices, int processes, const CommunicatorOptions& options = {});

// work(device, communicator) on a thread for each device of all processes; the messages of the
// errors thrown, by device, "" for none.
std::vector<std::string> on_all_devices(
    const std::vector<std::unique_ptr<Communicator>>& communicators,
    const std::function<void(int64_t device, Communicator& communicator)>& work);

// The graph of one device: the collective alone.
Graph trial_graph(const CommunicatorTrial& trial, int64_t device);

// Each device's result. REQUIREs that no device fails.
std::vector<Bytes> run_trial(const CommunicatorTrial& trial,
                             const std::vector<std::unique_ptr<Communicator>>& communicators,
                             const std::vector<Bytes>& operands);
// What it should be, from the definitions, element by element.
std::vector<std::vector<double>> expected_results(const CommunicatorTrial& trial,
                                                  const std::vector<std::vector<double>>& operands);

// Small whole numbers, whose sums are exact in every dtype; each device's own.
std::vector<std::vector<double>> whole_operands(const CommunicatorTrial& trial);

}  // namespace tessera
