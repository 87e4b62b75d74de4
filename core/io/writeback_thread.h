// SPDX-License-Identifier: Apache-2.0
// Starts the writeback of a file (sync_file_range) while it is still being written, so that the
// sync at the end is shorter. In a thread, because the request itself blocks on a slow disk. Only
// an optimization: without it the final sync writes everything.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "core/io/file.h"

namespace tessera {

class WritebackThread {
 public:
  explicit WritebackThread(const ByteFile& file);  // Must outlive it.
  ~WritebackThread();                              // Waits for a running request.
  WritebackThread(const WritebackThread&) = delete;
  WritebackThread& operator=(const WritebackThread&) = delete;

  // Reports that the bytes before `end` have been written.
  void wrote(int64_t end);

 private:
  void run();

  const ByteFile& file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t written_ = 0;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace tessera
