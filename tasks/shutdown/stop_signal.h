// SPDX-License-Identifier: Apache-2.0
// SIGTERM, Ctrl-C, SIGUSR1 (which mpirun and Slurm pass on without haste) and SIGHUP (the terminal
// is closed; under nohup it is ignored) as a wish to stop at the next step boundary. A second
// Ctrl-C kills as usual; other signals may come again.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera {

// Listens while it lives; what was installed before is put back. Several hear the same signal.
class StopSignal {
 public:
  // What whoever listens does about it: comes to a stop by itself, or only reports it.
  enum class Answer { kStops, kReports };

  explicit StopSignal(Answer answer = Answer::kStops);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  int requested() const;        // The signal's number; 0: none came.
  static bool anybody_stops();  // Whether somebody who stops listens.
  // All processes have heard of the signal and are about to save and end.
  static void heed();
  static bool is_heeded();
  // Ends this process as the signal does where nobody listens.
  static void end_by(int signal);
  static const char* name(int signal);  // "SIGTERM", "Ctrl-C", "SIGUSR1", "SIGHUP"

 private:
  Answer answer_;
};

// Something must be done by a certain time, or something else is done instead. It stops nothing by
// itself.

class Deadline {
 public:
  // Calls `missed`, on a thread of its own, unless destroyed within `time`. Where the system has no
  // thread for it, there is no deadline.
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
