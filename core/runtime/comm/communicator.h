// SPDX-License-Identifier: Apache-2.0
// Connects the devices of a run, one object per process: it makes the kernels of the collectives of
// lowered graphs and knows which device waits for which. Each kind of device has its own
// (device_kinds.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/devices/device.h"
#include "core/graph/graph.h"
#include "core/runtime/comm/transport.h"

namespace tessera {

struct CommunicatorOptions {
  int64_t local_devices = 1;                  // Devices per process, equal in all processes.
  std::shared_ptr<Transport> transport;       // Null: this process alone.
  std::chrono::milliseconds timeout{600000};  // Timeout of one collective.
  bool deterministic = true;                  // Whether every run gives the same bits.
  // Called by each device before it joins a collective; tests delay or fail there.
  std::function<void(int64_t device, int64_t number)> before_joining;
};

class Communicator {
 public:
  explicit Communicator(CommunicatorOptions options) : options_(std::move(options)) {}
  virtual ~Communicator() = default;
  Communicator& operator=(Communicator&&) = delete;  // Neither copied nor moved.

  const CommunicatorOptions& options() const { return options_; }
  Transport* transport() const { return options_.transport.get(); }  // Null if alone.
  std::chrono::milliseconds timeout() const { return options_.timeout; }
  int process() const { return transport() != nullptr ? transport()->rank() : 0; }
  int num_processes() const { return transport() != nullptr ? transport()->size() : 1; }
  // Devices are numbered by process.
  int64_t num_devices() const { return num_processes() * local_devices(); }  // In all processes.
  int64_t local_devices() const { return options_.local_devices; }           // In this process.
  int64_t first_device() const { return process() * local_devices(); }       // In this process.

  // Makes the kernel of a collective node of the graph of device `device`. Every device of the
  // group prepares and runs one; all run their collectives in the same order. Running it throws an
  // Error if the run was stopped, or with a report after the timeout: which device (and process,
  // and host) is missing from which collective of which layer, and where the others are.
  virtual std::unique_ptr<Kernel> prepare(int64_t device, const Graph& graph, const Node& node) = 0;

  // A device's thread calls these before it launches a program, and when it has launched all of
  // it. `program` is any number that tells its programs apart.
  virtual void begin_run(int64_t device) { static_cast<void>(device); }
  virtual void end_run(int64_t device, int program) {
    static_cast<void>(device), static_cast<void>(program);
  }

  // Makes all current and later collectives of this process throw an Error with the reason.
  virtual void stop(const std::string& reason) = 0;
  virtual bool is_stopped() const = 0;

  // A stall probe (process_group.h): which collective of which layer, and which device of which
  // process, a device of this process has been waiting for at least `least`; or "".
  virtual std::string stalled(std::chrono::milliseconds least) const = 0;

  // Returns the bytes that device `device` has sent in collectives so far.
  virtual int64_t bytes_sent(int64_t device) const = 0;

  // Called by a device's thread in a run, when it has captured its launches or could not. Returns
  // whether the capture may be launched: each device must have one. If not, the captured
  // collectives do not count, and the device launches them.
  virtual bool agree_on_capture(int64_t device, bool captured) {
    static_cast<void>(device);
    return captured;
  }
  // Called when all launches of a run are done. A communicator whose kernels only enqueue throws
  // the errors of prepare() here and in begin_run().
  virtual void require_running() const {}

 private:
  CommunicatorOptions options_;
};

// The needs of a collective's kernel for memory planning. They depend on the node alone, not on how
// the devices are spread over processes, so that a plan made without devices is right.
struct CollectiveNeeds {
  int64_t scratch_bytes = 0;
  bool may_overwrite = false;  // The result may overwrite the operand's buffer.
};

}  // namespace tessera
