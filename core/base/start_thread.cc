// SPDX-License-Identifier: Apache-2.0
#include "core/base/start_thread.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace tessera {
namespace {

// Of this process; 0 where the kernel does not say.
int64_t running_threads() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Threads:")) return std::strtoll(line.c_str() + 8, nullptr, 10);
  return 0;
}

constexpr uint64_t kTurnNanoseconds = 100000;           // The least that Linux allows.
constexpr unsigned long kTimerSlackNanoseconds = 1000;  // NOLINT: prctl's type.

// The kernel's struct sched_attr, as of its first version; glibc has none.
struct SchedulerSetting {
  uint32_t size = sizeof(SchedulerSetting);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  // Since Linux 6.12: the length of a turn.
  uint64_t deadline = 0;
  uint64_t period = 0;
};

}  // namespace

std::thread start_thread(std::function<void()> work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    fail(
        "the system refuses to start another thread ({}); this process has {}. Use fewer with "
        "--threads=N or --devices=N, or raise the limit (ulimit -u, ulimit -v, or the container's "
        "pids.max)",
        error.code().message(), running_threads());
  }
}

void make_thread_prompt() {
  ::prctl(PR_SET_TIMERSLACK, kTimerSlackNanoseconds);
  const int policy = ::sched_getscheduler(0);
  if (policy == SCHED_FIFO || policy == SCHED_RR) {  // The program was started so (chrt).
    sched_param parameters{};
    if (::sched_getparam(0, &parameters) != 0) return;
    ++parameters.sched_priority;
    ::sched_setscheduler(0, policy, &parameters);
    return;
  }
  if (policy != SCHED_OTHER) return;
  SchedulerSetting setting;
  setting.nice = ::getpriority(PRIO_PROCESS, 0);
  setting.runtime = kTurnNanoseconds;
  ::syscall(SYS_sched_setattr, 0, &setting, 0);
}

}  // namespace tessera
