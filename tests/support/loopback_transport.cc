// SPDX-License-Identifier: Apache-2.0
#include "tests/support/loopback_transport.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>

#include "core/base/error.h"

namespace tessera {
namespace {

// Guarded by the network's mutex.
struct Parcel {
  std::span<const std::byte> outgoing;
  std::span<std::byte> incoming;
  bool done = false;
};

// Of one (from, to, tag): whoever came first waits for the other.
struct Lane {
  std::deque<std::shared_ptr<Parcel>> sends;
  std::deque<std::shared_ptr<Parcel>> receives;
};

struct Network {
  std::vector<std::string> hosts;
  std::mutex mutex;
  std::condition_variable moved;
  std::map<std::tuple<int, int, uint64_t>, Lane> lanes;

  void match(Lane& lane) {
    while (!lane.sends.empty() && !lane.receives.empty()) {
      Parcel& send = *lane.sends.front();
      Parcel& receive = *lane.receives.front();
      CHECK(send.outgoing.size() == receive.incoming.size(),
            "a message of {} bytes meets a receive of {}", send.outgoing.size(),
            receive.incoming.size());
      if (!send.outgoing.empty())
        std::memcpy(receive.incoming.data(), send.outgoing.data(), send.outgoing.size());
      send.done = receive.done = true;
      lane.sends.pop_front();
      lane.receives.pop_front();
    }
    moved.notify_all();
  }
};

class LoopbackMessage : public Message {
 public:
  LoopbackMessage(std::shared_ptr<Network> network, std::shared_ptr<Parcel> parcel)
      : network_(std::move(network)), parcel_(std::move(parcel)) {}

  bool wait_until(std::chrono::steady_clock::time_point deadline) override {
    std::unique_lock lock(network_->mutex);
    return network_->moved.wait_until(lock, deadline, [this] { return parcel_->done; });
  }

 private:
  std::shared_ptr<Network> network_;
  std::shared_ptr<Parcel> parcel_;
};

class LoopbackTransport : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<Network> network, int rank)
      : network_(std::move(network)), rank_(rank) {}

  std::string_view kind() const override { return "loopback"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(network_->hosts.size()); }
  const std::string& host(int rank) const override {
    return network_->hosts.at(static_cast<size_t>(rank));
  }

  std::unique_ptr<Message> send(int to, uint64_t tag, std::span<const std::byte> bytes) override {
    const auto parcel = std::make_shared<Parcel>(Parcel{.outgoing = bytes});
    const std::lock_guard lock(network_->mutex);
    Lane& lane = network_->lanes[{rank_, to, tag}];
    lane.sends.push_back(parcel);
    network_->match(lane);
    return std::make_unique<LoopbackMessage>(network_, parcel);
  }

  std::unique_ptr<Message> receive(int from, uint64_t tag, std::span<std::byte> bytes) override {
    const auto parcel = std::make_shared<Parcel>(Parcel{.incoming = bytes});
    const std::lock_guard lock(network_->mutex);
    Lane& lane = network_->lanes[{from, rank_, tag}];
    lane.receives.push_back(parcel);
    network_->match(lane);
    return std::make_unique<LoopbackMessage>(network_, parcel);
  }

  [[noreturn]] void abort(int exit_code) override { throw LoopbackAborted{exit_code}; }

 private:
  std::shared_ptr<Network> network_;
  int rank_ = 0;
};

}  // namespace

std::vector<std::shared_ptr<Transport>> make_loopback(int size, std::vector<std::string> hosts) {
  auto network = std::make_shared<Network>();
  hosts.resize(static_cast<size_t>(size), "host");
  network->hosts = std::move(hosts);
  std::vector<std::shared_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank)
    transports.push_back(std::make_shared<LoopbackTransport>(network, rank));
  return transports;
}

}  // namespace tessera
