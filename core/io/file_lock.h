// SPDX-License-Identifier: Apache-2.0
// Locks of files and directories between processes. The kernel releases them when the process ends.
#pragma once

namespace tessera {

enum class LockResult {
  kLocked,
  kHeldByAnother,
  kUnavailable,  // The file system has no locks.
};
enum class LockWait { kNo, kYes };

// Locks an open file by flock, or where the file system has none by a record lock of the open file.
LockResult lock_file(int descriptor, LockWait wait);

}  // namespace tessera
