// SPDX-License-Identifier: Apache-2.0
// Collectives of short texts and numbers among the processes of a run: the control plane. Tensors
// are exchanged by communicator.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/comm/transport.h"

namespace tessera {

// The objects of this process that may wait for another process. Thread-safe.
class StallProbes {
 public:
  // Returns what has been waited for at least `least`, such as "process 0 (host a) waits at 'step
  // 12' for process 1 (host b)"; or "".
  using Probe = std::function<std::string(std::chrono::milliseconds least)>;

  // Removes its probe when destroyed, which is before the StallProbes are.
  using Registration = std::shared_ptr<void>;
  [[nodiscard]] Registration add(Probe probe);
  // Returns the first text of a probe that is not empty; or "".
  std::string stalled(std::chrono::milliseconds least) const;

 private:
  mutable std::mutex mutex_;
  int64_t next_ = 0;
  std::map<int64_t, Probe> probes_;
};

// The failure of a run; equal in all processes.
struct SharedFailure {
  std::vector<std::string> errors;  // By rank; empty for a process without an error of its own.
  int exit_code = 1;                // The highest exit code of a failing process.
};

// Used by one thread at a time; another thread uses a ProcessGroup with a channel of its own. With
// one process all calls return at once.
class ProcessGroup {
 public:
  static constexpr std::chrono::milliseconds kTimeout{600000};
  static constexpr int kChannels = kFirstCollectiveTag - kFirstAgreementTag;

  // `transport` is null if this process is alone. Groups of one channel communicate.
  explicit ProcessGroup(std::shared_ptr<Transport> transport = nullptr,
                        std::chrono::milliseconds timeout = kTimeout, int channel = 0);
  ProcessGroup& operator=(ProcessGroup&&) = delete;  // Neither copied nor moved.

  int rank() const;
  int size() const;
  bool is_first() const { return rank() == 0; }
  std::string host(int rank) const;  // "" if this process is alone.
  std::string name(int rank) const;  // "process 3 (host b)"
  const std::shared_ptr<Transport>& transport() const { return transport_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  // Collectives: each returns when all processes have called it. All processes call the same ones
  // in the same order; `what` names the call in reports. Error if a process does not call it within
  // the timeout (the report names it), or calls fail_together() instead (then failure() is set in
  // all processes).
  void barrier(std::string_view what);
  std::string broadcast(std::string text, std::string_view what = "a broadcast");  // Process 0's.
  std::vector<std::string> all_gather(std::string text, std::string_view what = "an all-gather");
  // The texts by rank in process 0, empty ones in the others.
  std::vector<std::string> gather(std::string text, std::string_view what);
  int64_t all_reduce_max(int64_t value, std::string_view what = "the next step");
  // Each process calls work(), which returns a text; returns the texts by rank. If any throws, all
  // processes throw an Error with the failed processes and their errors.
  std::vector<std::string> run_on_all(std::string_view what,
                                      const std::function<std::string()>& work);

  // Called instead of a collective if this process cannot continue: tells the others at their next
  // collective. nullopt if some do not call one in time: then only Transport::abort is left.
  std::optional<SharedFailure> fail_together(const std::string& error, int exit_code,
                                             std::chrono::milliseconds timeout);
  const std::optional<SharedFailure>& failure() const { return failure_; }

  // Probes of what this process waits for, here or elsewhere; for watchdog threads.
  StallProbes& stall_probes() { return stall_probes_; }
  // Returns, for watchdogs, "process 0 (host a) is busy since 'step 12'…" or what it waits for.
  std::string status() const;

 private:
  struct Contribution;
  struct Round;
  struct Result;
  Result exchange(const Contribution& mine, std::chrono::milliseconds timeout);
  Result checked(const Contribution& mine);
  Round receive_contributions(const Contribution& mine, WaitDeadline& deadline);
  Result run_leader(const Contribution& mine, std::chrono::milliseconds timeout);
  void send_result(const Result& result, const std::string& what, const std::vector<int>& ranks,
                   std::chrono::milliseconds timeout);
  Result run_peer(const Contribution& mine, std::chrono::milliseconds timeout);
  void note_waiting(int other, const std::string& what);  // -1: for no other.
  std::string stalled(std::chrono::milliseconds least) const;

  std::shared_ptr<Transport> transport_;
  std::chrono::milliseconds timeout_;
  int tag_;
  uint64_t round_ = 0;
  mutable std::mutex waiting_mutex_;  // Guards the next three.
  int awaited_ = -1;
  std::string awaited_at_;
  std::chrono::steady_clock::time_point awaited_since_;
  std::optional<SharedFailure> failure_;
  std::string broken_;  // The reason why no collective is possible any more; or "".
  StallProbes stall_probes_;
  StallProbes::Registration own_probe_;
};

}  // namespace tessera
