// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/communicator.h"

#include <utility>

#include "core/base/error.h"
#include "core/ops/collective.h"
#include "core/runtime/comm/collective_info.h"
#include "core/runtime/comm/collective_kernel.h"
#include "core/runtime/comm/communicator_state.h"

namespace tessera {
namespace {

class CpuCommunicator final : public Communicator {
 public:
  explicit CpuCommunicator(const CommunicatorOptions& options)
      : Communicator(options), state_(options) {}

  std::unique_ptr<Kernel> prepare(int64_t device, const Graph& graph, const Node& node) override {
    return make_collective_kernel(state_, device, graph, node);
  }
  void stop(const std::string& reason) override { state_.stop(reason); }
  bool is_stopped() const override { return state_.is_stopped(); }
  std::string stalled(std::chrono::milliseconds least) const override {
    return state_.stalled(least);
  }
  int64_t bytes_sent(int64_t device) const override { return state_.bytes_sent(device); }

 private:
  CommunicatorState state_;
};

}  // namespace

Communicator::Communicator(CommunicatorOptions options) : options_(std::move(options)) {}
Communicator::~Communicator() = default;

int Communicator::process() const { return transport() != nullptr ? transport()->rank() : 0; }
int Communicator::num_processes() const { return transport() != nullptr ? transport()->size() : 1; }
int64_t Communicator::num_devices() const { return num_processes() * local_devices(); }
int64_t Communicator::first_device() const { return process() * local_devices(); }

std::unique_ptr<Communicator> make_cpu_communicator(CommunicatorOptions options) {
  return std::make_unique<CpuCommunicator>(options);
}

CollectiveNeeds cpu_collective_needs(const Graph& graph, const Node& node) {
  // While an all_reduce reads operands, each device writes only the part that it alone reads.
  return {.scratch_bytes = read_collective(graph, node).scratch_bytes(),
          .may_overwrite = node.op == &kAllReduceOp};
}

}  // namespace tessera
