// SPDX-License-Identifier: Apache-2.0
// What joins the devices of a run, on CPU: shared memory within a process, a transport between
// processes. It runs the collectives of lowered graphs and knows who waits for whom. One a process;
// devices of other kinds (NCCL) bring their own.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "core/graph/graph.h"
#include "core/runtime/comm/transport.h"

namespace tessera {

struct CommunicatorOptions {
  int64_t local_devices = 1;                  // Of this process; the same in each.
  std::shared_ptr<Transport> transport;       // Null: this process alone.
  std::chrono::milliseconds timeout{600000};  // Of one collective.
  // Called by each device before it joins a collective; tests delay or fail there.
  std::function<void(int64_t device, int64_t number)> before_joining;
};

// What planning must know of a collective's kernel. It depends on the node alone, not on how the
// devices are spread over processes: a plan made without them holds.
int64_t collective_scratch_bytes(const Graph& graph, const Node& node);
bool collective_may_overwrite(const Node& node);  // Its result its operand.

class Communicator {
 public:
  explicit Communicator(CommunicatorOptions options);
  ~Communicator();

  int64_t num_devices() const;   // Of all processes.
  int64_t first_device() const;  // Of this process; its devices are numbered on from it.
  int64_t local_devices() const;
  int process() const;
  int num_processes() const;
  Transport* transport() const;  // Null if alone.
  std::chrono::milliseconds timeout() const;

  // A collective node of device `device`'s graph, made ready to run. Every device of the group
  // prepares and runs it; the calls meet by the order in which each device runs its collectives.
  // run() throws an Error if the run was stopped, or with a report after the timeout: which device
  // (and process, and host) is missing from which collective of which layer, and where the others
  // are.
  std::unique_ptr<Kernel> prepare(int64_t device, const Graph& graph, const Node& node);

  // Wakes every device of this process that waits: their calls throw an Error with the reason, and
  // so do all later ones.
  void stop(const std::string& reason);
  bool is_stopped() const;

  // What a device of this process has been waiting for since `least` or longer: in which collective
  // of which layer, for which device of which process. Empty if none waits for another process. For
  // threads that watch.
  std::string stalled(std::chrono::milliseconds least) const;

  // Bytes that device `device` has sent in collectives so far.
  int64_t bytes_sent(int64_t device) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
