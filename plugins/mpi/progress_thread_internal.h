// SPDX-License-Identifier: Apache-2.0
// The one thread of a process that calls MPI. Other threads post requests to it and wait for them,
// so any MPI library will do (MPI_THREAD_FUNNELED), and transfers progress while they compute.
#pragma once

#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/runtime/comm/transport.h"

namespace tessera::mpi {

class ProgressThread;

// A send or a receive, matched by MPI: (peer, tag) in the order posted.
class MpiRequest final : public Request {
 public:
  enum class Kind { kSend, kReceive };

  // Only read if it is a send.
  MpiRequest(std::shared_ptr<ProgressThread> thread, Kind kind, int peer, int tag, std::byte* data,
             size_t size)
      : thread_(std::move(thread)), kind_(kind), peer_(peer), tag_(tag), data_(data), size_(size) {}
  ~MpiRequest() override;
  bool wait_until(std::chrono::steady_clock::time_point deadline) override;

 private:
  friend class ProgressThread;
  const std::shared_ptr<ProgressThread> thread_;
  const Kind kind_;
  const int peer_, tag_;
  std::byte* const data_;
  const size_t size_;
  int pieces_left_ = 0;  // Used by the progress thread only.
  // Guarded by the progress thread's mutex.
  bool done_ = false;
  std::condition_variable changed_;
};

class ProgressThread {
 public:
  ProgressThread();   // Calls MPI_Init; returns when all processes have joined.
  ~ProgressThread();  // Calls MPI_Finalize; ends this process if others do not do so in time.
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  int rank() const { return rank_; }
  int largest_tag() const { return largest_tag_; }
  const std::vector<std::string>& hosts() const { return hosts_; }  // By rank.

  // Error if the thread has stopped.
  void post(MpiRequest& request);
  // Whether the request is done by the deadline. Error if the thread has stopped before.
  bool wait(MpiRequest& request, std::chrono::steady_clock::time_point deadline);
  // Stops the thread unless the request is done: MPI must not use its memory any more.
  void release(MpiRequest& request);
  [[noreturn]] void abort(int exit_code);

 private:
  enum class State { kJoining, kRunning, kStopped, kFinished };
  // An MPI request. Large messages are sent in several pieces, since MPI counts bytes in an int.
  struct Piece {
    MpiRequest* request = nullptr;
    int bytes = 0;
  };

  void run();
  void join();
  void progress();
  void start(MpiRequest& request);
  bool complete_pieces();
  bool pause(int idle_rounds);
  void stop(const std::string& error);

  int rank_ = 0;
  int largest_tag_ = 0;
  std::vector<std::string> hosts_;

  // Used by the thread only: requests_[i] is that of pieces_[i].
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_;
  std::vector<MpiRequest*> starting_;  // Taken from posted_.
  std::vector<int> completed_;
  std::vector<MPI_Status> statuses_;

  std::mutex mutex_;                 // Guards the rest, and done_ of requests.
  std::condition_variable wake_;     // Notifies the thread,
  std::condition_variable changed_;  // and those that wait for its state.
  std::vector<MpiRequest*> posted_;  // Not taken by the thread yet.
  State state_ = State::kJoining;
  std::string error_;  // Why no request can be done any more; or empty.
  bool closing_ = false;
  int abort_code_ = -1;
  std::thread thread_;
};

}  // namespace tessera::mpi
