// SPDX-License-Identifier: Apache-2.0
// What waiting for other processes needs: deadlines that a suspension of this process does not
// shorten, and a registry that tells a watchdog thread what this process waits for.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace tessera {

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
  // Whether nine tenths of the timeout had passed at the last poll.
  bool nearly_expired() const { return (last_poll_ - begin_) * 10 >= timeout_ * 9; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  // " (this process itself was suspended for 9.2 s)", or "" if it was not.
  std::string suspension_note() const;

 private:
  std::chrono::milliseconds timeout_;
  Clock::time_point begin_;
  Clock::time_point last_poll_;
  std::chrono::milliseconds suspended_{0};
};

// The places of this process that may wait for another process. Thread-safe.
class StallProbes {
 public:
  // Returns what has been waited for since `least` or longer, such as "process 0 (host a) waits at
  // 'step 12' for process 1 (host b)"; or "".
  using Probe = std::function<std::string(std::chrono::milliseconds least)>;

  // Removes its probe when destroyed.
  class [[nodiscard]] Registration {
   public:
    Registration() = default;
    Registration(StallProbes& probes, int64_t number) : probes_(&probes), number_(number) {}
    Registration(Registration&& other) noexcept : probes_(other.probes_), number_(other.number_) {
      other.probes_ = nullptr;
    }
    Registration& operator=(Registration&&) = delete;
    ~Registration();

   private:
    StallProbes* probes_ = nullptr;
    int64_t number_ = 0;
  };

  Registration add(Probe probe);
  // What the first probe returns that returns anything; or "".
  std::string stalled(std::chrono::milliseconds least) const;

 private:
  mutable std::mutex mutex_;
  int64_t next_ = 0;
  std::map<int64_t, Probe> probes_;
};

}  // namespace tessera
