// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/cpu_communicator.h"

#include <utility>

#include "core/ops/reshard.h"
#include "core/runtime/comm/collective_info.h"
#include "core/runtime/comm/collective_kernel.h"
#include "core/runtime/comm/communicator_state.h"

namespace tessera {
namespace {

class CpuCommunicator final : public Communicator {
 public:
  explicit CpuCommunicator(CommunicatorOptions options)
      : Communicator(std::move(options)), state_(*this) {}

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

std::unique_ptr<Communicator> make_cpu_communicator(CommunicatorOptions options) {
  return std::make_unique<CpuCommunicator>(std::move(options));
}

CollectiveNeeds cpu_collective_needs(const Graph& graph, const Node& node) {
  // While an all_reduce reads operands, each device writes only the part that only it reads.
  return {.scratch_bytes = read_collective(graph, node).scratch_bytes(),
          .may_overwrite = node.op == &kAllReduceOp};
}

}  // namespace tessera
