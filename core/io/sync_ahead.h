// SPDX-License-Identifier: Apache-2.0
// Has the disk begin with the bytes of a file while more are written, so that the sync at the end
// waits for less. A thread of its own asks for it, because on a slow disk the request itself waits,
// and the writer is not to. Only a help: without it the last sync does all.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "core/io/byte_file.h"

namespace tessera {

class SyncAhead {
 public:
  explicit SyncAhead(const ByteFile& file);  // Which outlives it.
  ~SyncAhead();                              // Waits for a request under way.
  SyncAhead(const SyncAhead&) = delete;
  SyncAhead& operator=(const SyncAhead&) = delete;

  // All bytes before `end` were written, but for few that will be.
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
