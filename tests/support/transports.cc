// SPDX-License-Identifier: Apache-2.0
#include "tests/support/transports.h"

#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

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

struct Header {
  int tag = 0;
  uint64_t bytes = 0;
};

bool read_all(int socket, void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::recv(socket, at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int socket, const void* from, size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

// A posted receive.
struct SocketReceive {
  std::span<std::byte> to;
  bool done = false;
  bool abandoned = false;  // Its request was destroyed, so `to` may be gone.
};

// The connection to one process.
struct Peer {
  int socket = -1;
  std::mutex sending;
  std::thread reader;
  // Guarded by the transport's mutex.
  std::map<int, std::deque<std::vector<std::byte>>> arrived;
  std::map<int, std::deque<std::shared_ptr<SocketReceive>>> awaited;
  bool broken = false;
};

class SocketRequest : public Request {
 public:
  SocketRequest(std::mutex& mutex, std::condition_variable& moved, const Peer* peer, int from,
                std::shared_ptr<SocketReceive> posted)
      : mutex_(mutex), moved_(moved), peer_(peer), from_(from), receive_(std::move(posted)) {}

  ~SocketRequest() override {
    const std::lock_guard lock(mutex_);
    receive_->abandoned = true;
  }

  bool wait_until(std::chrono::steady_clock::time_point deadline) override {
    std::unique_lock lock(mutex_);
    const bool moved =
        moved_.wait_until(lock, deadline, [this] { return receive_->done || peer_->broken; });
    if (moved && !receive_->done) fail("the connection to process {} broke", from_);
    return moved;
  }

 private:
  std::mutex& mutex_;
  std::condition_variable& moved_;
  const Peer* peer_;
  int from_;
  std::shared_ptr<SocketReceive> receive_;
};

// Sends are synchronous, because the other side always reads.
class Sent : public Request {
  bool wait_until(std::chrono::steady_clock::time_point) override { return true; }
};

class SocketTransport : public Transport {
 public:
  SocketTransport(int rank, const std::vector<int>& sockets) : rank_(rank), host_("host") {
    for (const int socket : sockets) {
      peers_.push_back(std::make_unique<Peer>());
      peers_.back()->socket = socket;
    }
    for (auto& peer : peers_)
      if (peer->socket >= 0) peer->reader = std::thread([this, &peer] { read(*peer); });
  }

  ~SocketTransport() override {
    for (auto& peer : peers_)
      if (peer->socket >= 0) ::shutdown(peer->socket, SHUT_RDWR);
    for (auto& peer : peers_)
      if (peer->reader.joinable()) peer->reader.join();
  }

  std::string_view kind() const override { return "sockets"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  const std::string& host(int) const override { return host_; }

  std::unique_ptr<Request> send(int to, int tag, std::span<const std::byte> bytes) override {
    Peer& peer = *peers_.at(static_cast<size_t>(to));
    const Header header{tag, bytes.size()};
    const std::lock_guard lock(peer.sending);
    if (!write_all(peer.socket, &header, sizeof(header)) ||
        !write_all(peer.socket, bytes.data(), bytes.size()))
      fail("the connection to process {} broke", to);
    return std::make_unique<Sent>();
  }

  std::unique_ptr<Request> receive(int from, int tag, std::span<std::byte> bytes) override {
    Peer& peer = *peers_.at(static_cast<size_t>(from));
    auto posted = std::make_shared<SocketReceive>(SocketReceive{bytes});
    {
      const std::lock_guard lock(mutex_);
      peer.awaited[tag].push_back(posted);
      match(peer, tag);
    }
    return std::make_unique<SocketRequest>(mutex_, moved_, &peer, from, std::move(posted));
  }

  [[noreturn]] void abort(int exit_code) override { ::_exit(exit_code); }

 private:
  void match(Peer& peer, int tag) {
    auto& arrived = peer.arrived[tag];
    auto& awaited = peer.awaited[tag];
    while (!arrived.empty() && !awaited.empty()) {
      SocketReceive& receive = *awaited.front();
      CHECK(arrived.front().size() == receive.to.size(), "a message of another size");
      if (!arrived.front().empty() && !receive.abandoned)
        std::memcpy(receive.to.data(), arrived.front().data(), arrived.front().size());
      receive.done = true;
      arrived.pop_front();
      awaited.pop_front();
    }
    moved_.notify_all();
  }

  void read(Peer& peer) {
    for (Header header; read_all(peer.socket, &header, sizeof(header));) {
      std::vector<std::byte> bytes(header.bytes);
      if (!read_all(peer.socket, bytes.data(), bytes.size())) break;
      const std::lock_guard lock(mutex_);
      peer.arrived[header.tag].push_back(std::move(bytes));
      match(peer, header.tag);
    }
    const std::lock_guard lock(mutex_);
    peer.broken = true;
    moved_.notify_all();
  }

  int rank_;
  std::string host_;
  std::mutex mutex_;
  std::condition_variable moved_;
  std::vector<std::unique_ptr<Peer>> peers_;
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

std::vector<pid_t> fork_processes(int size,
                                  const std::function<int(std::shared_ptr<Transport>)>& work) {
  const auto count = static_cast<size_t>(size);
  std::vector<std::vector<int>> sockets(count, std::vector<int>(count, -1));
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = 0; b < a; ++b) {
      int pair[2];
      CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
      sockets[a][b] = pair[0];
      sockets[b][a] = pair[1];
    }
  }
  std::vector<pid_t> children;
  for (size_t rank = 0; rank < count; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (size_t other = 0; other < count; ++other)
        for (const int socket : sockets[other])
          if (other != rank && socket >= 0) ::close(socket);  // Detects the exit of `other`.
      int code = 1;
      try {
        code = work(std::make_shared<SocketTransport>(static_cast<int>(rank), sockets[rank]));
      } catch (const Error&) {
      }
      ::_exit(code);
    }
    children.push_back(child);
  }
  for (const auto& row : sockets)
    for (const int socket : row)
      if (socket >= 0) ::close(socket);
  return children;
}

}  // namespace tessera
