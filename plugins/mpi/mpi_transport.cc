// SPDX-License-Identifier: Apache-2.0
// The transport "mpi": joins the processes that mpirun or srun started. A shared library of its own
// (tessera/transports/mpi.so), so that Tessera needs no MPI where there is one process.
#include "core/base/error.h"
#include "core/runtime/comm/transport_registry.h"
#include "plugins/mpi/courier_internal.h"

namespace tessera {
namespace {

using mpi::Courier;
using mpi::Parcel;

class MpiMessage : public Message {
 public:
  MpiMessage(std::shared_ptr<Courier> courier, std::shared_ptr<Parcel> parcel)
      : courier_(std::move(courier)), parcel_(std::move(parcel)) {}

  ~MpiMessage() override {
    {
      const std::lock_guard lock(parcel_->mutex);
      if (parcel_->done || !parcel_->error.empty()) return;
    }
    // MPI would go on writing to memory that is somebody else's by then.
    courier_->give_up("a message between the processes was given up while under way");
  }

  bool wait_until(std::chrono::steady_clock::time_point deadline) override {
    std::unique_lock lock(parcel_->mutex);
    parcel_->changed.wait_until(lock, deadline,
                                [this] { return parcel_->done || !parcel_->error.empty(); });
    if (!parcel_->error.empty()) fail("{}", parcel_->error);
    return parcel_->done;
  }

 private:
  std::shared_ptr<Courier> courier_;
  std::shared_ptr<Parcel> parcel_;
};

class MpiTransport : public Transport {
 public:
  MpiTransport() : courier_(std::make_shared<Courier>()) {}

  std::string_view kind() const override { return "mpi"; }
  int rank() const override { return courier_->rank(); }
  int size() const override { return static_cast<int>(courier_->hosts().size()); }
  const std::string& host(int rank) const override {
    return courier_->hosts().at(static_cast<size_t>(rank));
  }

  std::unique_ptr<Message> send(int to, uint64_t tag, std::span<const std::byte> bytes) override {
    return post(Parcel::Direction::kSend, to, tag, const_cast<std::byte*>(bytes.data()),
                bytes.size());
  }
  std::unique_ptr<Message> receive(int from, uint64_t tag, std::span<std::byte> bytes) override {
    return post(Parcel::Direction::kReceive, from, tag, bytes.data(), bytes.size());
  }
  [[noreturn]] void abort(int exit_code) override { courier_->abort(exit_code); }

 private:
  std::unique_ptr<Message> post(Parcel::Direction direction, int peer, uint64_t tag,
                                std::byte* data, size_t size) {
    CHECK(peer >= 0 && peer < this->size(), "process {} of {}", peer, this->size());
    auto parcel = std::make_shared<Parcel>();
    parcel->direction = direction;
    parcel->peer = peer;
    parcel->tag = tag;
    parcel->data = data;
    parcel->size = size;
    courier_->post(parcel);
    return std::make_unique<MpiMessage>(courier_, parcel);
  }

  std::shared_ptr<Courier> courier_;
};

const bool kRegistered = [] {
  register_transport(
      "mpi", []() -> std::shared_ptr<Transport> { return std::make_shared<MpiTransport>(); });
  return true;
}();

}  // namespace
}  // namespace tessera
