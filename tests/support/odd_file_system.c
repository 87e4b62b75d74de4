// SPDX-License-Identifier: Apache-2.0
// A library for LD_PRELOAD that makes every file system behave like some network file systems.
// FLOCK_ERRNO=38: no flock. BUSY=substring: such directories cannot be removed, as where NFS keeps
// a .nfs file in them for a process that has it open.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int flock(int descriptor, int operation) {
  int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
  const char* without = getenv("FLOCK_ERRNO");
  if (without == NULL) return real(descriptor, operation);
  errno = atoi(without);
  return -1;
}

int unlinkat(int directory, const char* path, int flags) {
  int (*real)(int, const char*, int) = (int (*)(int, const char*, int))dlsym(RTLD_NEXT, "unlinkat");
  const char* busy = getenv("BUSY");
  if (busy == NULL || (flags & AT_REMOVEDIR) == 0 || strstr(path, busy) == NULL)
    return real(directory, path, flags);
  errno = ENOTEMPTY;
  return -1;
}

int remove(const char* path) {
  int (*real)(const char*) = (int (*)(const char*))dlsym(RTLD_NEXT, "remove");
  const char* busy = getenv("BUSY");
  struct stat status;
  if (busy == NULL || strstr(path, busy) == NULL || lstat(path, &status) != 0 ||
      !S_ISDIR(status.st_mode))
    return real(path);
  errno = ENOTEMPTY;
  return -1;
}
