// SPDX-License-Identifier: Apache-2.0
// Reports what this process was waiting for, or doing, when it is told to stop. A launcher that
// sees one process die sends the others SIGTERM and kills them soon after; this report is their
// only chance to name the missing process.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/runtime/comm/process_group.h"
#include "tasks/shutdown/stop_signal.h"

namespace tessera {

class StallWatch {
 public:
  // Watches on its own thread while it lives. `name` ("process 1 of 2") is used until the processes
  // have joined. A process that waits for no other reports what it does `last_moment` after the
  // signal: before the launcher kills it.
  StallWatch(std::string name, std::chrono::milliseconds last_moment);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // While it lives, the watch asks `processes` what they wait for.
  class [[nodiscard]] Attention {
   public:
    Attention(StallWatch* watch, ProcessGroup& processes);  // `watch` may be null.
    ~Attention();
    Attention(const Attention&) = delete;
    Attention& operator=(const Attention&) = delete;

   private:
    StallWatch* watch_;
  };

  // Turns reporting off: the reason why this process ends has been reported.
  void dismiss();
  // Writes reports to failures.log in this directory, too (tasks/logging/run_log.h).
  void log_in(const std::filesystem::path& run_directory);

 private:
  using Clock = std::chrono::steady_clock;
  void watch();
  std::string report(Clock::time_point now, Clock::time_point noticed);
  void note_look(Clock::time_point now);

  const StopSignal stop_{StopSignal::Answer::kReports};
  std::mutex mutex_;  // Guards the members below.
  std::condition_variable changed_;
  bool ended_ = false;
  bool dismissed_ = false;
  const std::chrono::milliseconds last_moment_;
  std::string name_;
  std::string doing_;  // Reported if no ProcessGroup is set.
  ProcessGroup* processes_ = nullptr;
  std::filesystem::path run_directory_;
  Clock::time_point last_look_ = Clock::now();
  Clock::time_point woken_;                // When this process was last resumed (SIGCONT),
  std::chrono::duration<double> stopped_;  // and for how long it had been stopped.
  std::thread thread_;
};

}  // namespace tessera
