// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/runtime/executor/prompt_thread.h"
#include "plugins/mpi/courier_internal.h"
#include "plugins/mpi/mailbox_internal.h"

namespace tessera::mpi {
namespace {

using namespace std::chrono_literals;

// Between looks at MPI while something is expected: at first at once, yielding the processor, then
// after sleeps that grow, since our own compute threads may want it.
constexpr int kEagerRounds = 100;
constexpr std::chrono::microseconds kShortestSleep{20};
constexpr std::chrono::microseconds kLongestSleep{200};

constexpr auto kAbortPatience = 3s;
constexpr auto kClosePatience = 60s;
constexpr size_t kHostBytes = 256;

// Names by rank. Two machines of one name are told apart by who shares memory with whom.
std::vector<std::string> find_hosts(MPI_Comm comm, int rank, int size) {
  struct Place {
    std::array<char, kHostBytes> name{};
    int first_rank = 0;  // Of those that share this memory.
  };
  Place mine;
  ::gethostname(mine.name.data(), kHostBytes - 1);
  MPI_Comm neighbours = MPI_COMM_NULL;
  check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &neighbours),
        "MPI_Comm_split_type");
  mine.first_rank = rank;
  check(MPI_Bcast(&mine.first_rank, 1, MPI_INT, 0, neighbours), "MPI_Bcast");
  MPI_Comm_free(&neighbours);
  std::vector<Place> places(static_cast<size_t>(size));
  check(MPI_Allgather(&mine, sizeof(Place), MPI_BYTE, places.data(), sizeof(Place), MPI_BYTE, comm),
        "MPI_Allgather");

  std::map<std::string, std::vector<int>> machines;  // By name: the first rank of each.
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

// Open MPI ends a process that cannot find the others with a text of its own that says no way out.
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

}  // namespace

Courier::Courier() {
  // Signals are for the threads that were there before.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = start_thread([this] { work(); });
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ready_; });
  if (broken_.empty()) return;
  closing_ = true;
  wake_.notify_one();
  lock.unlock();
  thread_.join();
  fail("{}", broken_);
}

Courier::~Courier() {
  std::unique_lock lock(mutex_);
  closing_ = true;
  wake_.notify_one();
  // The others may be gone without a word; whoever launched us ends them if we end badly.
  if (!changed_.wait_for(lock, kClosePatience, [this] { return finished_; })) {
    std::fputs("runexp: the other processes did not end; ending without them\n", stderr);
    std::fflush(nullptr);
    ::_exit(1);
  }
  lock.unlock();
  thread_.join();
}

void Courier::post(const std::shared_ptr<Parcel>& parcel) {
  const std::lock_guard lock(mutex_);
  if (!broken_.empty()) fail("{}", broken_);
  posted_.push_back(parcel);
  wake_.notify_one();
}

void Courier::give_up(const std::string& reason) {
  std::unique_lock lock(mutex_);
  if (broken_.empty()) broken_ = reason;
  wake_.notify_one();
  changed_.wait(lock, [this] { return stopped_ || finished_; });
}

void Courier::abort(int exit_code) {
  std::fflush(nullptr);
  {
    std::unique_lock lock(mutex_);
    abort_code_ = exit_code;
    wake_.notify_one();
    changed_.wait_for(lock, kAbortPatience, [] { return false; });
  }
  ::_exit(exit_code);  // MPI did not get to it; whoever launched us ends the others.
}

struct Courier::State {
  Mailbox mailbox;
  std::deque<std::shared_ptr<Parcel>> posted;
};

// Hands over what was posted and lets MPI progress until all is closed or broken.
void Courier::deliver(State& state) {
  int idle_rounds = 0;
  while (rest(idle_rounds, state.mailbox.expects_something())) {
    {
      const std::lock_guard lock(mutex_);
      state.posted.swap(posted_);
    }
    bool moved = !state.posted.empty();
    for (; !state.posted.empty(); state.posted.pop_front())
      state.mailbox.start(state.posted.front());
    moved |= state.mailbox.progress();
    idle_rounds = moved ? 0 : idle_rounds + 1;
  }
}

// Waits as long as it makes sense; false if there is nothing more to do.
bool Courier::rest(int idle_rounds, bool expects_something) {
  std::unique_lock lock(mutex_);
  const auto is_called = [this] {
    return !posted_.empty() || !broken_.empty() || closing_ || abort_code_ >= 0;
  };
  if (!expects_something) {
    wake_.wait(lock, is_called);
  } else if (!is_called() && idle_rounds > kEagerRounds) {
    const int longer = std::min((idle_rounds - kEagerRounds) / 8, 16);
    wake_.wait_for(lock, std::min(kShortestSleep * (1 + longer), kLongestSleep), is_called);
  } else if (!is_called() && idle_rounds > 0) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  if (abort_code_ >= 0) {
    lock.unlock();
    MPI_Abort(MPI_COMM_WORLD, abort_code_);
    lock.lock();
  }
  return broken_.empty() && (!closing_ || !posted_.empty() || expects_something);
}

void Courier::work() {
  make_thread_prompt();
  // While it starts and ends, MPI waits by spinning; with more processes than processors that takes
  // the time of those it waits for.
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  std::unique_ptr<State> state;
  MPI_Comm comm = MPI_COMM_NULL;
  std::string error;
  try {
    check_launcher();
    int provided = MPI_THREAD_SINGLE, size = 1;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_FUNNELED) fail("this MPI library does not allow programs of threads");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    hosts_ = find_hosts(comm, rank_, size);
    state = std::make_unique<State>(State{Mailbox(comm), {}});
    {
      const std::lock_guard lock(mutex_);
      ready_ = true;
      changed_.notify_all();
    }
    deliver(*state);
  } catch (const Error& failure) {
    error = failure.what();
  }
  std::vector<std::shared_ptr<Parcel>> lost;
  if (state) lost = state->mailbox.unfinished();
  {
    std::unique_lock lock(mutex_);
    if (broken_.empty()) broken_ = error;
    if (state) lost.insert(lost.end(), state->posted.begin(), state->posted.end());
    lost.insert(lost.end(), posted_.begin(), posted_.end());
    ready_ = stopped_ = true;
    changed_.notify_all();
  }
  for (const std::shared_ptr<Parcel>& parcel : lost) {
    const std::lock_guard lock(parcel->mutex);
    if (!parcel->done) parcel->error = broken_;
    parcel->changed.notify_all();
  }
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return closing_ || abort_code_ >= 0; });
  const bool is_whole = broken_.empty();
  lock.unlock();
  if (abort_code_ >= 0) MPI_Abort(MPI_COMM_WORLD, abort_code_);
  if (is_whole) {
    MPI_Comm_free(&comm);
    MPI_Finalize();
  }
  lock.lock();
  finished_ = true;
  changed_.notify_all();
}

}  // namespace tessera::mpi
