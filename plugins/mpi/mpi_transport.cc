// SPDX-License-Identifier: Apache-2.0
// The transport "mpi": joins the processes that mpirun or srun started. A shared library of its own
// (tessera/transports/mpi.so), so Tessera depends on MPI only in runs of several processes.
#include "core/base/error.h"
#include "plugins/mpi/progress_thread_internal.h"

namespace tessera {
namespace {

using mpi::MpiRequest;
using mpi::ProgressThread;

class MpiTransport : public Transport {
 public:
  std::string_view kind() const override { return "mpi"; }
  int rank() const override { return thread_->rank(); }
  int size() const override { return static_cast<int>(thread_->hosts().size()); }
  const std::string& host(int rank) const override {
    return thread_->hosts().at(static_cast<size_t>(rank));
  }

  std::unique_ptr<Request> send(int to, int tag, std::span<const std::byte> bytes) override {
    return post(MpiRequest::Kind::kSend, to, tag, const_cast<std::byte*>(bytes.data()),
                bytes.size());
  }
  std::unique_ptr<Request> receive(int from, int tag, std::span<std::byte> bytes) override {
    return post(MpiRequest::Kind::kReceive, from, tag, bytes.data(), bytes.size());
  }
  [[noreturn]] void abort(int exit_code) override { thread_->abort(exit_code); }

 private:
  std::unique_ptr<Request> post(MpiRequest::Kind kind, int peer, int tag, std::byte* data,
                                size_t size) {
    CHECK(peer >= 0 && peer < this->size(), "process {} of {}", peer, this->size());
    if (tag > thread_->largest_tag())
      fail(
          "this MPI library has tags up to {}, but a message needs tag {}: run more processes with "
          "fewer devices each (--devices)",
          thread_->largest_tag(), tag);
    auto request = std::make_unique<MpiRequest>(thread_, kind, peer, tag, data, size);
    thread_->post(*request);
    return request;
  }

  const std::shared_ptr<ProgressThread> thread_ = std::make_shared<ProgressThread>();
};

const bool kRegistered = [] {
  register_transport(
      "mpi", []() -> std::shared_ptr<Transport> { return std::make_shared<MpiTransport>(); });
  return true;
}();

}  // namespace
}  // namespace tessera
