// SPDX-License-Identifier: Apache-2.0
// Runs one collective on all devices of a mesh, which are threads of one test for any number of
// simulated processes, and computes the expected result.
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

// A collective over some mesh axes, and the type of each device's operand.
struct CommunicatorTrial {
  Mesh mesh;
  std::vector<std::string> mesh_axes;
  std::string op;
  Type in;
  Attributes attributes = {};  // axis, split_axis, concat_axis, reduction.
  int64_t shift = 1;           // For a permute: the distance within the group.
  bool in_place = false;

  std::string text() const;
  Type out() const;
};

// Communicators for a run of this many simulated processes.
std::vector<std::unique_ptr<Communicator>> make_communicators(
    int64_t devices, int processes, const CommunicatorOptions& options = {});

// Runs work(device, communicator) on one thread per device of all processes. Returns the message of
// the error that each device threw, or "".
std::vector<std::string> on_all_devices(
    const std::vector<std::unique_ptr<Communicator>>& communicators,
    const std::function<void(int64_t device, Communicator& communicator)>& work);

// The graph of one device, with the collective as its only op.
Graph trial_graph(const CommunicatorTrial& trial, int64_t device);

// The result of each device. REQUIREs that no device fails.
std::vector<Bytes> run_trial(const CommunicatorTrial& trial,
                             const std::vector<std::unique_ptr<Communicator>>& communicators,
                             const std::vector<Bytes>& operands);
// The expected result, computed from the definition element by element.
std::vector<std::vector<double>> expected_results(const CommunicatorTrial& trial,
                                                  const std::vector<std::vector<double>>& operands);

// Small integers, different on each device, whose sums are exact in every dtype.
std::vector<std::vector<double>> whole_operands(const CommunicatorTrial& trial);
// Fractions in [-1, 1], whose sums are rounded.
std::vector<std::vector<double>> random_operands(const CommunicatorTrial& trial);

std::vector<Bytes> encoded_operands(DType dtype, const std::vector<std::vector<double>>& arrays);

// Each kind of collective, on arrays with odd sizes.
std::vector<CommunicatorTrial> collective_trials(const Mesh& mesh,
                                                 const std::vector<std::string>& axes, DType dtype);

}  // namespace tessera
