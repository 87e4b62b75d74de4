// SPDX-License-Identifier: Apache-2.0
#include "core/io/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

namespace tessera {

LockResult lock_file(int descriptor, LockWait wait) {
  const bool waits = wait == LockWait::kYes;
  struct flock whole {};
  whole.l_type = F_WRLCK;
  int result = 0;
  do {
    result = ::flock(descriptor, waits ? LOCK_EX : LOCK_EX | LOCK_NB);
    if (result != 0 && errno != EINTR && errno != EWOULDBLOCK)
      result = ::fcntl(descriptor, waits ? F_OFD_SETLKW : F_OFD_SETLK, &whole);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return LockResult::kLocked;
  return errno == EAGAIN || errno == EACCES ? LockResult::kHeldByAnother : LockResult::kUnavailable;
}

}  // namespace tessera
