// SPDX-License-Identifier: Apache-2.0
#include "core/io/writeback_thread.h"

#include "core/base/error.h"
#include "core/base/process.h"

namespace tessera {
namespace {

constexpr int64_t kRequestBytes = int64_t{32} << 20;

}  // namespace

WritebackThread::WritebackThread(const ByteFile& file) : file_(file) {
  try {
    thread_ = start_thread([this] { run(); });
  } catch (const Error&) {  // The final sync then writes everything.
  }
}

WritebackThread::~WritebackThread() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WritebackThread::wrote(int64_t end) {
  {
    const std::lock_guard lock(mutex_);
    written_ = end;
  }
  changed_.notify_all();
}

void WritebackThread::run() {
  int64_t requested = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || written_ >= requested + kRequestBytes; });
    if (stops_) return;
    const int64_t end = written_;
    lock.unlock();
    file_.start_sync(requested, end - requested);
    requested = end;
    lock.lock();
  }
}

}  // namespace tessera
