// SPDX-License-Identifier: Apache-2.0
// Point-to-point messages between the processes of a run, and deadlines of waits for them.
// Collectives (communicator.h) and agreement (process_group.h) are built on them. A run of one
// process has no transport; others come from plugins.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

// Tags by user. They are small because MPI guarantees no tags above 32767.
constexpr int kPositionsTag = 0;         // Reports of a hang (cpu_communicator.h).
constexpr int kFirstAgreementTag = 1;    // process_group.h: one tag per channel.
constexpr int kFirstCollectiveTag = 64;  // collective_kernel.h: one tag per pair of devices.

// A pending send or receive. Destroying it before it is done makes the transport unusable.
class Request {
 public:
  virtual ~Request() = default;
  // Returns whether it is done by the deadline.
  virtual bool wait_until(std::chrono::steady_clock::time_point deadline) = 0;
};

// The deadline of a wait for another process or device. A suspension of this process (SIGSTOP,
// Ctrl-Z, a suspended machine) restarts the timeout; otherwise the process would blame the others
// when it resumes. The caller waits, and polls the deadline while it does.
class WaitDeadline {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPollInterval{50};
  // The process was suspended if a poll is this late.
  static constexpr std::chrono::milliseconds kSuspended{1000};

  explicit WaitDeadline(std::chrono::milliseconds timeout = {},
                        Clock::time_point now = Clock::now())
      : timeout_(timeout), begin_(now), last_poll_(now) {}

  Clock::time_point next_poll() const { return last_poll_ + kPollInterval; }
  // Called before a wait that follows work of this process. Work of a second or more does not count
  // against the timeout, since it cannot be told from a suspension.
  void resume(Clock::time_point now = Clock::now());
  // Returns whether the timeout has passed.
  bool poll(Clock::time_point now = Clock::now());
  // Returns whether nine tenths of the timeout had passed at the last poll.
  bool nearly_expired() const { return (last_poll_ - begin_) * 10 >= timeout_ * 9; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  // Returns " (this process itself was suspended for 9.2 s)", or "" if it was not.
  std::string suspension_note() const;

 private:
  std::chrono::milliseconds timeout_;
  Clock::time_point begin_;
  Clock::time_point last_poll_;
  std::chrono::milliseconds suspended_{0};
};

// Keeps objects, such as requests that are never done, until the process ends: hanging threads may
// still use them.
void keep_until_exit(std::shared_ptr<void> objects);

// Carries messages between processes. Thread-safe. An Error means that the transport itself failed
// (a connection broke); the run cannot continue.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view kind() const = 0;  // "mpi"
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& host(int rank) const = 0;  // Equal for all processes of a host.

  // Start a transfer; `bytes` must stay valid until the request is done. A message matches the
  // receive of the same (sender, receiver, tag) in the order posted, with the same size, which may
  // be 0.
  virtual std::unique_ptr<Request> send(int to, int tag, std::span<const std::byte> bytes) = 0;
  virtual std::unique_ptr<Request> receive(int from, int tag, std::span<std::byte> bytes) = 0;

  // Ends all processes of the run, this one included, without waiting for any.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

// Returns the number of processes of a lower rank on this process's host; 0 without a transport.
int local_rank(const Transport* transport);

// Joins the processes that were started together with this one; Error if it cannot. Called once.
using MakeTransport = std::shared_ptr<Transport> (*)();

// Registers a transport and replaces an earlier one of the same name. It throws nothing, since
// plugins call it while they are being loaded.
void register_transport(std::string_view name, MakeTransport make);

// Makes a registered transport; Error with the registered names if there is none of this name.
std::shared_ptr<Transport> make_transport(std::string_view name);

}  // namespace tessera
