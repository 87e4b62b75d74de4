// SPDX-License-Identifier: Apache-2.0
// SIGTERM, Ctrl-C, SIGUSR1 (which mpirun and Slurm forward without killing) and SIGHUP (the
// terminal was closed; ignored under nohup) as requests to stop at the next step boundary. A second
// Ctrl-C kills the process; other signals may be repeated.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera {

// Handles the signals while it lives and restores the previous handlers. Several may coexist.
class StopSignal {
 public:
  // Whether the listener stops the run itself or only reports the signal.
  enum class Answer { kStops, kReports };

  explicit StopSignal(Answer answer = Answer::kStops);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  int requested() const;        // The signal's number; 0: none.
  static bool anybody_stops();  // Whether a listener that stops the run exists.
  // Called when all processes have agreed on the signal and are about to save and end.
  static void heed();
  static bool is_heeded();
  // Ends this process by the signal's default action.
  static void end_by(int signal);
  static const char* name(int signal);  // "SIGTERM", "Ctrl-C", "SIGUSR1", "SIGHUP"

 private:
  Answer answer_;
};

// Calls a function if it is not destroyed within a given time. It does not interrupt anything.
class Deadline {
 public:
  // Calls `missed` on its own thread unless destroyed within `time`. If no thread can be started,
  // there is no deadline.
  Deadline(std::chrono::milliseconds time, std::function<void()> missed);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool met_ = false;
  std::thread thread_;
};

}  // namespace tessera
