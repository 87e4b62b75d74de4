// SPDX-License-Identifier: Apache-2.0
// Says what a process of several waits for, or does, when it is told to stop. A launcher that sees
// one process die tells the others to stop, and kills them a moment later: this is their only
// chance to say who is missing, and from what.
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
  // Watches on a thread of its own while it lives. `name` ("process 1 of 2") serves until the
  // processes have joined. Who waits for nobody says what it does when `last_moment` has passed
  // since the signal: before the launcher kills.
  StallWatch(std::string name, std::chrono::milliseconds last_moment);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // While it lives, the processes are asked what they wait for.
  class [[nodiscard]] Attention {
   public:
    Attention(StallWatch* watch, ProcessGroup& processes);  // `watch` may be null.
    ~Attention();
    Attention(const Attention&) = delete;
    Attention& operator=(const Attention&) = delete;

   private:
    StallWatch* watch_;
  };

  // From now on nothing is reported: why this process ends has been said.
  void dismiss();
  // Where reports go besides stderr (failure_log.h).
  void log_in(const std::filesystem::path& run_directory);

 private:
  using Clock = std::chrono::steady_clock;
  void watch();
  std::string report(Clock::time_point now, Clock::time_point told);
  void note_look(Clock::time_point now);

  const StopSignal stop_{StopSignal::Answer::kReports};
  std::mutex mutex_;  // Of what follows.
  std::condition_variable changed_;
  bool ended_ = false;
  bool dismissed_ = false;
  const std::chrono::milliseconds last_moment_;
  std::string name_;
  std::string doing_;  // While nobody is asked.
  ProcessGroup* processes_ = nullptr;
  std::filesystem::path run_directory_;
  Clock::time_point last_look_ = Clock::now();
  Clock::time_point woken_;                // When this process was last found to have been stopped,
  std::chrono::duration<double> stopped_;  // and for how long.
  std::thread thread_;
};

}  // namespace tessera
