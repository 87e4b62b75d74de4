// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/communicator.h"

#include <utility>

#include "core/base/error.h"
#include "core/ops/collective.h"
#include "core/runtime/comm/collective_info.h"
#include "core/runtime/comm/collective_kernel.h"
#include "core/runtime/comm/communicator_state.h"

namespace tessera {

int64_t collective_scratch_bytes(const Graph& graph, const Node& node) {
  return read_collective(graph, node).scratch_bytes();
}

// While an all_reduce reads operands, each device writes only the part that it alone reads.
bool collective_may_overwrite(const Node& node) { return node.op == &kAllReduceOp; }

struct Communicator::Impl {
  CommunicatorState state;
};

Communicator::Communicator(CommunicatorOptions options)
    : impl_(new Impl{CommunicatorState(std::move(options))}) {}
Communicator::~Communicator() = default;

int64_t Communicator::num_devices() const { return num_processes() * local_devices(); }
int64_t Communicator::first_device() const { return impl_->state.first_device(); }
int64_t Communicator::local_devices() const { return impl_->state.options().local_devices; }
int Communicator::process() const { return impl_->state.process(); }
int Communicator::num_processes() const { return impl_->state.num_processes(); }
Transport* Communicator::transport() const { return impl_->state.transport(); }

std::unique_ptr<Kernel> Communicator::prepare(int64_t device, const Graph& graph,
                                              const Node& node) {
  return make_collective_kernel(impl_->state, device, graph, node);
}

void Communicator::stop(const std::string& reason) { impl_->state.stop(reason); }
bool Communicator::is_stopped() const { return impl_->state.is_stopped(); }
std::chrono::milliseconds Communicator::timeout() const { return impl_->state.options().timeout; }
std::string Communicator::stalled(std::chrono::milliseconds least) const {
  return impl_->state.stalled(least);
}
int64_t Communicator::bytes_sent(int64_t device) const { return impl_->state.bytes_sent(device); }

}  // namespace tessera
