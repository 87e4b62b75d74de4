// SPDX-License-Identifier: Apache-2.0
// The transport "mpi": joins the processes that mpirun or srun started. A shared library of its own
// (tessera/transports/mpi.so), so Tessera depends on MPI only in runs of several processes.
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/runtime/comm/transport.h"

namespace tessera {
namespace {

class MpiTransport;

// A send or a receive, matched by MPI: (peer, tag) in the order posted.
class MpiRequest final : public Request {
 public:
  enum class Kind { kSend, kReceive };

  // Only read if it is a send.
  MpiRequest(std::shared_ptr<MpiTransport> transport, Kind kind, int peer, int tag, std::byte* data,
             size_t size)
      : transport_(std::move(transport)),
        kind_(kind),
        peer_(peer),
        tag_(tag),
        data_(data),
        size_(size) {}
  ~MpiRequest() override;
  bool wait_until(std::chrono::steady_clock::time_point deadline) override;

 private:
  friend class MpiTransport;
  const std::shared_ptr<MpiTransport> transport_;
  const Kind kind_;
  const int peer_, tag_;
  std::byte* const data_;
  const size_t size_;
  int pieces_left_ = 0;  // Used by the progress thread only.
  // Guarded by the transport's mutex.
  bool done_ = false;
  std::condition_variable changed_;
};

using namespace std::chrono_literals;

// While requests are pending the thread polls MPI: first in a loop that yields the processor, then
// between sleeps of growing length, because compute threads may need the processor.
constexpr int kYieldingRounds = 100;
constexpr std::chrono::microseconds kShortestSleep{20};
constexpr std::chrono::microseconds kLongestSleep{200};

constexpr auto kAbortTimeout = 3s;
constexpr auto kFinalizeTimeout = 60s;
constexpr size_t kHostBytes = 256;
constexpr size_t kLargestPiece = size_t{1} << 30;

void check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  fail("the connection between the processes failed: {}: {}", call,
       std::string_view(text, static_cast<size_t>(length)));
}

// Host names by rank. Different machines of the same name are told apart by their shared memory.
std::vector<std::string> find_hosts(MPI_Comm comm, int rank) {
  struct Place {
    std::array<char, kHostBytes> name{};
    int first_rank = 0;  // The lowest rank on the same machine.
  };
  Place mine;
  ::gethostname(mine.name.data(), kHostBytes - 1);
  MPI_Comm machine = MPI_COMM_NULL;
  check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine),
        "MPI_Comm_split_type");
  mine.first_rank = rank;
  check(MPI_Bcast(&mine.first_rank, 1, MPI_INT, 0, machine), "MPI_Bcast");
  MPI_Comm_free(&machine);
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  std::vector<Place> places(static_cast<size_t>(size));
  check(MPI_Allgather(&mine, sizeof(Place), MPI_BYTE, places.data(), sizeof(Place), MPI_BYTE, comm),
        "MPI_Allgather");

  std::map<std::string, std::vector<int>> machines;  // The first ranks of machines, by name.
  std::vector<std::string> hosts;
  for (const Place& place : places) {
    std::vector<int>& same = machines[place.name.data()];
    auto at = std::find(same.begin(), same.end(), place.first_rank);
    if (at == same.end()) at = same.insert(same.end(), place.first_rank);
    hosts.push_back(at == same.begin()
                        ? place.name.data()
                        : fmt::format("{}#{}", place.name.data(), at - same.begin() + 1));
  }
  return hosts;
}

// If a process cannot find the others, Open MPI ends it with a message that names no remedy.
void check_launcher() {
#ifdef OPEN_MPI
  const auto is_set = [](const char* variable) { return ::getenv(variable) != nullptr; };
  const bool by_srun = is_set("SLURM_STEP_ID") && is_set("SLURM_PROCID");
  if (by_srun && !is_set("PMIX_RANK") && !is_set("PMI_RANK") && !is_set("OMPI_COMM_WORLD_RANK"))
    fail(
        "srun started this process without a way to find the others; use srun --mpi=pmix (srun "
        "--mpi=list shows what this cluster has), or mpirun");
#endif
}

// All calls of MPI are made by one thread, the progress thread. Other threads post requests to it
// and wait for them, so any MPI library will do (MPI_THREAD_FUNNELED), and transfers progress while
// they compute. Requests share ownership of the transport.
class MpiTransport final : public Transport, public std::enable_shared_from_this<MpiTransport> {
 public:
  // Calls MPI_Init; returns when all processes have joined.
  MpiTransport() {
    // Signals are handled by the threads of the program.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = start_thread([this] { run(); });
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return state_ != State::kJoining; });
    if (error_.empty()) return;
    closing_ = true;
    wake_.notify_one();
    lock.unlock();
    thread_.join();
    fail("{}", error_);
  }

  // Calls MPI_Finalize; ends this process if others do not do so in time.
  ~MpiTransport() override {
    std::unique_lock lock(mutex_);
    closing_ = true;
    wake_.notify_one();
    // MPI_Finalize may wait for processes that died. After a nonzero exit code the launcher ends
    // the others.
    if (!changed_.wait_for(lock, kFinalizeTimeout, [this] { return state_ == State::kFinished; })) {
      std::fputs("runexp: the other processes did not end; ending without them\n", stderr);
      std::fflush(nullptr);
      ::_exit(1);
    }
    lock.unlock();
    thread_.join();
  }

  MpiTransport& operator=(MpiTransport&&) = delete;  // Neither copied nor moved.

  std::string_view kind() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hosts_.size()); }
  const std::string& host(int rank) const override { return hosts_.at(static_cast<size_t>(rank)); }

  std::unique_ptr<Request> send(int to, int tag, std::span<const std::byte> bytes) override {
    return post(MpiRequest::Kind::kSend, to, tag, const_cast<std::byte*>(bytes.data()),
                bytes.size());
  }
  std::unique_ptr<Request> receive(int from, int tag, std::span<std::byte> bytes) override {
    return post(MpiRequest::Kind::kReceive, from, tag, bytes.data(), bytes.size());
  }

  [[noreturn]] void abort(int exit_code) override {
    std::fflush(nullptr);
    {
      std::unique_lock lock(mutex_);
      abort_code_ = exit_code;
      wake_.notify_one();
      changed_.wait_for(lock, kAbortTimeout, [] { return false; });
    }
    ::_exit(exit_code);  // MPI_Abort did not end this process; the launcher ends the others.
  }

  // Whether the request is done by the deadline. Error if the thread has stopped before.
  bool wait(MpiRequest& request, std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    request.changed_.wait_until(lock, deadline,
                                [&] { return request.done_ || state_ != State::kRunning; });
    if (!request.done_ && state_ != State::kRunning) fail("{}", error_);
    return request.done_;
  }

  // Stops the thread unless the request is done: MPI must not use its memory any more.
  void release(MpiRequest& request) {
    std::unique_lock lock(mutex_);
    if (request.done_ || state_ != State::kRunning) return;
    if (error_.empty()) error_ = "a message between the processes was abandoned before it was done";
    wake_.notify_one();
    changed_.wait(lock, [this] { return state_ != State::kRunning; });
  }

 private:
  enum class State { kJoining, kRunning, kStopped, kFinished };
  // An MPI request. Large messages are sent in several pieces, since MPI counts bytes in an int.
  struct Piece {
    MpiRequest* request = nullptr;
    int bytes = 0;
  };

  // Error if the thread has stopped.
  std::unique_ptr<Request> post(MpiRequest::Kind kind, int peer, int tag, std::byte* data,
                                size_t size) {
    CHECK(peer >= 0 && peer < this->size(), "process {} of {}", peer, this->size());
    if (tag > largest_tag_)
      fail(
          "this MPI library has tags up to {}, but a message needs tag {}: run more processes with "
          "fewer devices each (--devices)",
          largest_tag_, tag);
    auto request = std::make_unique<MpiRequest>(shared_from_this(), kind, peer, tag, data, size);
    const std::lock_guard lock(mutex_);
    if (state_ != State::kRunning || !error_.empty()) fail("{}", error_);
    posted_.push_back(request.get());
    wake_.notify_one();
    return request;
  }

  // The rest is called by the progress thread.
  void run() {
    make_thread_prompt();
    // MPI_Init and MPI_Finalize poll. With more processes than processors they would otherwise take
    // processor time from the processes that they wait for.
    ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    std::string error;
    try {
      join();
      progress();
    } catch (const Error& caught) {
      error = caught.what();
    }
    stop(error);
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return closing_ || abort_code_ >= 0; });
    const bool failed = !error_.empty();
    const int abort_code = abort_code_;
    lock.unlock();
    if (abort_code >= 0) MPI_Abort(MPI_COMM_WORLD, abort_code);
    if (!failed) {
      MPI_Comm_free(&comm_);
      MPI_Finalize();
    }
    lock.lock();
    state_ = State::kFinished;
    changed_.notify_all();
  }

  void join() {
    check_launcher();
    int provided = MPI_THREAD_SINGLE, found = 0;
    int* largest_tag = nullptr;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_FUNNELED) fail("this MPI library does not support threads");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_get_attr(comm_, MPI_TAG_UB, &largest_tag, &found), "MPI_Comm_get_attr");
    constexpr int kGuaranteedTag = 32767;
    largest_tag_ = found != 0 ? *largest_tag : kGuaranteedTag;
    hosts_ = find_hosts(comm_, rank_);
    const std::lock_guard lock(mutex_);
    state_ = State::kRunning;
    changed_.notify_all();
  }

  void progress() {
    for (int idle_rounds = 0; pause(idle_rounds);) {
      {
        const std::lock_guard lock(mutex_);
        starting_.swap(posted_);
      }
      for (MpiRequest* request : starting_) start(*request);
      const bool started = !starting_.empty();
      starting_.clear();  // Requests may be destroyed once they are done.
      const bool completed = complete_pieces();
      idle_rounds = started || completed ? 0 : idle_rounds + 1;
    }
  }

  void start(MpiRequest& request) {
    size_t begin = 0;
    do {
      const int bytes = static_cast<int>(std::min(kLargestPiece, request.size_ - begin));
      MPI_Request piece = MPI_REQUEST_NULL;
      if (request.kind_ == MpiRequest::Kind::kSend) {
        check(MPI_Isend(request.data_ + begin, bytes, MPI_BYTE, request.peer_, request.tag_, comm_,
                        &piece),
              "MPI_Isend");
      } else {
        check(MPI_Irecv(request.data_ + begin, bytes, MPI_BYTE, request.peer_, request.tag_, comm_,
                        &piece),
              "MPI_Irecv");
      }
      requests_.push_back(piece);
      pieces_.push_back({&request, bytes});
      ++request.pieces_left_;
      begin += static_cast<size_t>(bytes);
    } while (begin < request.size_);
  }

  // Returns whether any piece was completed.
  bool complete_pieces() {
    if (requests_.empty()) return false;
    completed_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int count = 0;
    const int result = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                    completed_.data(), statuses_.data());
    if (result == MPI_ERR_IN_STATUS)
      for (int i = 0; i < count; ++i)
        check(statuses_[static_cast<size_t>(i)].MPI_ERROR, "MPI_Testsome");
    check(result, "MPI_Testsome");
    if (count <= 0) return false;
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      Piece& piece = pieces_[static_cast<size_t>(completed_[i])];
      MpiRequest& request = *piece.request;
      int bytes = piece.bytes;
      if (request.kind_ == MpiRequest::Kind::kReceive)
        MPI_Get_count(&statuses_[i], MPI_BYTE, &bytes);
      if (bytes != piece.bytes)
        fail("a message of {} bytes matches a receive of {} (tag {})", bytes, piece.bytes,
             request.tag_);
      piece.request = nullptr;
      if (--request.pieces_left_ > 0) continue;
      request.done_ = true;
      request.changed_.notify_all();
    }
    std::erase(requests_, MPI_REQUEST_NULL);
    std::erase_if(pieces_, [](const Piece& piece) { return piece.request == nullptr; });
    return true;
  }

  // Waits until MPI should be called again; false if the thread must stop.
  bool pause(int idle_rounds) {
    std::unique_lock lock(mutex_);
    const auto is_called = [this] {
      return !posted_.empty() || !error_.empty() || closing_ || abort_code_ >= 0;
    };
    if (requests_.empty()) {
      wake_.wait(lock, is_called);
    } else if (!is_called() && idle_rounds > kYieldingRounds) {
      const int longer = std::min((idle_rounds - kYieldingRounds) / 8, 16);
      wake_.wait_for(lock, std::min(kShortestSleep * (1 + longer), kLongestSleep), is_called);
    } else if (!is_called() && idle_rounds > 0) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
    if (abort_code_ >= 0) {
      const int abort_code = abort_code_;
      lock.unlock();
      MPI_Abort(MPI_COMM_WORLD, abort_code);
      lock.lock();
    }
    return error_.empty() && !closing_;
  }

  void stop(const std::string& error) {
    const std::lock_guard lock(mutex_);
    if (error_.empty()) error_ = error;
    state_ = State::kStopped;
    changed_.notify_all();
    for (const Piece& piece : pieces_)
      if (piece.request != nullptr) piece.request->changed_.notify_all();
    for (MpiRequest* request : starting_) request->changed_.notify_all();
    for (MpiRequest* request : posted_) request->changed_.notify_all();
  }

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

MpiRequest::~MpiRequest() { transport_->release(*this); }

bool MpiRequest::wait_until(std::chrono::steady_clock::time_point deadline) {
  return transport_->wait(*this, deadline);
}

const bool kRegistered = [] {
  register_transport(
      "mpi", []() -> std::shared_ptr<Transport> { return std::make_shared<MpiTransport>(); });
  return true;
}();

}  // namespace
}  // namespace tessera
