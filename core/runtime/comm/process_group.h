// SPDX-License-Identifier: Apache-2.0
// Agreement among the processes of a run: who goes first, who failed, whether to stop. Tensors do
// not pass here (communicator.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/comm/patience.h"
#include "core/runtime/comm/transport.h"
#include "core/runtime/comm/waits.h"

namespace tessera {

// How a run that failed ends, alike in each process.
struct SharedFailure {
  std::vector<std::string> errors;  // By rank; empty for a process that had none of its own.
  int exit_code = 1;                // The largest that a failing process asked for.
};

// One thread at a time; another thread agrees on a channel of its own. Alone, all calls return at
// once.
class ProcessGroup {
 public:
  static constexpr std::chrono::milliseconds kTimeout{600000};

  // `transport` may be null: this process alone. Each channel is one line of agreement.
  explicit ProcessGroup(std::shared_ptr<Transport> transport = nullptr,
                        std::chrono::milliseconds timeout = kTimeout, uint64_t channel = 0);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const;
  int size() const;
  bool is_first() const { return rank() == 0; }
  std::string host(int rank) const;  // "" alone.
  std::string name(int rank) const;  // "process 3 (host b)"
  const std::shared_ptr<Transport>& transport() const { return transport_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  // Each returns when all processes have called it; they must call the same ones in the same order,
  // and `what` says in reports what is agreed on. Error if a process does not come within the
  // timeout (it is named), or comes with a failure (then failure() is set in all of them).
  void barrier(std::string_view what);
  std::string broadcast(std::string text, std::string_view what = "a broadcast");  // Process 0's.
  std::vector<std::string> gather(std::string text, std::string_view what = "a gathering");
  int64_t all_reduce_max(int64_t value, std::string_view what = "the next step");

  // This process cannot go on: tells the others at the agreement they come to next. nullopt if they
  // do not come in time: then only Transport::abort is left.
  std::optional<SharedFailure> fail_together(const std::string& error, int exit_code,
                                             std::chrono::milliseconds patience);
  const std::optional<SharedFailure>& failure() const { return failure_; }

  // What this process waits for, in an agreement or elsewhere; for threads that watch.
  Waits& waits() { return waits_; }
  // "process 0 (host a) is busy since 'step 12'": how far it has come, if it waits for nobody.
  std::string whereabouts() const;

 private:
  struct Round;
  struct Contribution;
  Round agree(Contribution mine, std::chrono::milliseconds timeout);
  Round lead(Contribution mine, std::chrono::milliseconds timeout);
  Round follow(const Contribution& mine, std::chrono::milliseconds timeout);
  void note_waiting(int other, const std::string& what);  // -1: for nobody.
  std::string stalled(std::chrono::milliseconds least) const;

  std::shared_ptr<Transport> transport_;
  std::chrono::milliseconds timeout_;
  uint64_t tag_;
  uint64_t round_ = 0;
  mutable std::mutex waiting_mutex_;  // Of the next three.
  int awaited_ = -1;
  std::string awaited_at_;
  std::chrono::steady_clock::time_point awaited_since_;
  std::optional<SharedFailure> failure_;
  std::string broken_;                               // Why no more can be agreed on; or empty.
  std::vector<std::shared_ptr<void>> never_waited_;  // Messages that nobody answered.
  Waits waits_;
  Waits::Entry own_waits_;
};

}  // namespace tessera
