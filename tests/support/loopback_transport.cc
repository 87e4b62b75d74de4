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
struct Transfer {
  std::span<const std::byte> outgoing;
  std::span<std::byte> incoming;
  bool done = false;
};

// Unmatched sends or receives with the same (from, to, tag).
struct Channel {
  std::deque<std::shared_ptr<Transfer>> sends;
  std::deque<std::shared_ptr<Transfer>> receives;
};

struct Network {
  std::vector<std::string> hosts;
  std::mutex mutex;
  std::condition_variable moved;
  std::map<std::tuple<int, int, int>, Channel> channels;

  void match(Channel& channel) {
    while (!channel.sends.empty() && !channel.receives.empty()) {
      Transfer& send = *channel.sends.front();
      Transfer& receive = *channel.receives.front();
      CHECK(send.outgoing.size() == receive.incoming.size(),
            "a message of {} bytes meets a receive of {}", send.outgoing.size(),
            receive.incoming.size());
      if (!send.outgoing.empty())
        std::memcpy(receive.incoming.data(), send.outgoing.data(), send.outgoing.size());
      send.done = receive.done = true;
      channel.sends.pop_front();
      channel.receives.pop_front();
    }
    moved.notify_all();
  }
};

class LoopbackRequest : public Request {
 public:
  LoopbackRequest(std::shared_ptr<Network> network, std::shared_ptr<Transfer> transfer)
      : network_(std::move(network)), transfer_(std::move(transfer)) {}

  bool wait_until(std::chrono::steady_clock::time_point deadline) override {
    std::unique_lock lock(network_->mutex);
    return network_->moved.wait_until(lock, deadline, [this] { return transfer_->done; });
  }

 private:
  std::shared_ptr<Network> network_;
  std::shared_ptr<Transfer> transfer_;
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

  std::unique_ptr<Request> send(int to, int tag, std::span<const std::byte> bytes) override {
    const auto transfer = std::make_shared<Transfer>(Transfer{.outgoing = bytes});
    const std::lock_guard lock(network_->mutex);
    Channel& channel = network_->channels[{rank_, to, tag}];
    channel.sends.push_back(transfer);
    network_->match(channel);
    return std::make_unique<LoopbackRequest>(network_, transfer);
  }

  std::unique_ptr<Request> receive(int from, int tag, std::span<std::byte> bytes) override {
    const auto transfer = std::make_shared<Transfer>(Transfer{.incoming = bytes});
    const std::lock_guard lock(network_->mutex);
    Channel& channel = network_->channels[{from, rank_, tag}];
    channel.receives.push_back(transfer);
    network_->match(channel);
    return std::make_unique<LoopbackRequest>(network_, transfer);
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
