// SPDX-License-Identifier: Apache-2.0
// Memory for large tables that are read in random order: pages of 2 MiB, where the system has them,
// so that an access rarely waits for the translation of its address.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace tessera {

// An allocator for containers.
template <typename T>
struct HugePages {
  using value_type = T;

  HugePages() = default;
  template <typename Other>
  HugePages(const HugePages<Other>&) {}  // NOLINT: containers convert it.

  // Always new memory: what was used before keeps the size of its pages.
  T* allocate(size_t count) {
    void* const memory = ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    ::madvise(memory, count * sizeof(T), MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) { ::munmap(memory, count * sizeof(T)); }
  bool operator==(const HugePages&) const { return true; }
};

}  // namespace tessera
