// SPDX-License-Identifier: Apache-2.0
// Signals as requests to stop at the next step boundary: SIGTERM, Ctrl-C, SIGHUP (the terminal was
// closed), those that a batch system sends before a limit (SIGUSR1, SIGUSR2, SIGXCPU, …), and
// timers. A second Ctrl-C kills the process; other signals may be repeated. Watchdog reports what a
// process was waiting for when such a signal came.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "core/runtime/comm/process_group.h"

namespace tessera {

// Handles the signals while it lives and restores the previous handlers. Several may coexist.
class StopSignal {
 public:
  // Whether the listener stops the run itself or only reports the signal.
  enum class Answer { kStops, kReports };

  explicit StopSignal(Answer answer = Answer::kStops);
  ~StopSignal();
  StopSignal& operator=(StopSignal&&) = delete;  // Neither copied nor moved.

  int requested() const;        // The signal's number; 0: none.
  static bool anybody_stops();  // Whether a listener that stops the run exists.
  // Called when all processes have agreed on the signal and are about to save and end.
  static void heed();
  static bool is_heeded();
  // Ends this process by the signal's default action.
  static void end_by(int signal);
  static std::string name(int signal);  // "SIGTERM", "Ctrl-C"

 private:
  Answer answer_;
};

// Calls a function if it is not destroyed within a given time. It does not interrupt anything.
class Deadline {
 public:
  // Calls `missed` on its own thread unless destroyed within `time`. If no thread can be started,
  // there is no deadline.
  Deadline(std::chrono::milliseconds time, std::function<void()> missed);

 private:
  std::jthread thread_;
};

// Ends all processes with exit code 1 unless a stopped run has saved its step in time.
Deadline deadline_of_save(int64_t step, int64_t seconds, ProcessGroup& processes);

// Reports what this process was waiting for, or doing, when it is told to stop. A launcher that
// sees one process die sends the others SIGTERM and kills them soon after; this report is their
// only chance to name the missing process.
class Watchdog {
 public:
  // Watches on its own thread while it lives. `name` ("process 1 of 2") is used until the processes
  // have joined. A process that waits for no other reports what it does `last_moment` after the
  // signal: before the launcher kills it.
  Watchdog(std::string name, std::chrono::milliseconds last_moment);
  Watchdog& operator=(Watchdog&&) = delete;  // Neither copied nor moved.

  // While it lives, the watch asks `processes` what they wait for.
  class [[nodiscard]] Attention {
   public:
    Attention(Watchdog* watch, ProcessGroup& processes);  // `watch` may be null.
    ~Attention();
    Attention& operator=(Attention&&) = delete;  // Neither copied nor moved.

   private:
    Watchdog* watch_;
  };

  // Turns reporting off: the reason why this process ends has been reported.
  void dismiss();
  // Writes reports to failures.log in this directory, too (tasks/run/log/run_log.h).
  void log_in(const std::filesystem::path& run_directory);

 private:
  using Clock = std::chrono::steady_clock;
  void watch(const std::stop_token& stop);
  std::string report(Clock::time_point now, Clock::time_point noticed);
  void note_look(Clock::time_point now);

  const StopSignal stop_{StopSignal::Answer::kReports};
  std::mutex mutex_;  // Guards the members below.
  bool dismissed_ = false;
  const std::chrono::milliseconds last_moment_;
  std::string name_;
  std::string doing_;  // Reported if no ProcessGroup is set.
  ProcessGroup* processes_ = nullptr;
  std::filesystem::path run_directory_;
  Clock::time_point last_look_ = Clock::now();
  Clock::time_point woken_;                // When this process was last resumed (SIGCONT),
  std::chrono::duration<double> stopped_;  // and for how long it had been stopped.
  std::jthread thread_;
};

}  // namespace tessera
