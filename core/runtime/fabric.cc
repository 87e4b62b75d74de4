// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/fabric.h"

#include <utility>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/runtime/collective_info.h"
#include "core/runtime/collective_kernel.h"
#include "core/runtime/fabric_state.h"

namespace tessera {

int64_t collective_scratch_bytes(const Graph& graph, const Node& node) {
  return read_collective(graph, node).scratch_bytes();
}

// While an all_reduce reads operands, each device writes only the part that it alone reads.
bool collective_may_overwrite(const Node& node) { return node.op->name == "all_reduce"; }

struct Fabric::Impl {
  FabricState state;
};

Fabric::Fabric(FabricOptions options) : impl_(new Impl{FabricState(std::move(options))}) {}
Fabric::~Fabric() = default;

int64_t Fabric::num_devices() const { return num_processes() * local_devices(); }
int64_t Fabric::first_device() const { return impl_->state.first_device(); }
int64_t Fabric::local_devices() const { return impl_->state.options().local_devices; }
int Fabric::process() const { return impl_->state.process(); }
int Fabric::num_processes() const { return impl_->state.num_processes(); }
Transport* Fabric::transport() const { return impl_->state.transport(); }

std::unique_ptr<Kernel> Fabric::prepare(int64_t device, const Graph& graph, const Node& node) {
  return make_collective_kernel(impl_->state, device, graph, node);
}

void Fabric::stop(const std::string& reason) { impl_->state.stop(reason); }
bool Fabric::is_stopped() const { return impl_->state.is_stopped(); }
std::chrono::milliseconds Fabric::timeout() const { return impl_->state.options().timeout; }
std::string Fabric::stalled(std::chrono::milliseconds least) const {
  return impl_->state.stalled(least);
}
int64_t Fabric::bytes_sent(int64_t device) const { return impl_->state.bytes_sent(device); }

}  // namespace tessera
