// SPDX-License-Identifier: Apache-2.0
#include "tests/virtual_gpu/host_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

namespace tessera::virtual_gpu {
namespace {

constexpr size_t kPage = 4096;

size_t round_up(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

bool (*found_closed)(const void* address) = nullptr;
struct sigaction earlier_handler = {};

void on_segmentation_fault(int, siginfo_t* info, void*) {
  if (found_closed(info->si_addr)) return;
  sigaction(SIGSEGV, &earlier_handler,
            nullptr);  // The access is repeated, with the earlier handler.
}

}  // namespace

PinnedMemory::PinnedMemory(size_t bytes)
    : bytes_(bytes), mapped_bytes_(round_up(std::max<size_t>(bytes, 1))) {
  const int file = memfd_create("virtual_gpu", MFD_CLOEXEC);
  const bool sized = file >= 0 && ftruncate(file, static_cast<off_t>(mapped_bytes_)) == 0;
  const auto map = [&] {
    return mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  };
  void* const host = sized ? map() : MAP_FAILED;
  void* const device = sized ? map() : MAP_FAILED;
  if (file >= 0) close(file);
  if (host == MAP_FAILED || device == MAP_FAILED) throw std::bad_alloc();
  host_ = static_cast<std::byte*>(host);
  device_ = static_cast<std::byte*>(device);
}

PinnedMemory::~PinnedMemory() {
  munmap(host_, mapped_bytes_);
  munmap(device_, mapped_bytes_);
}

void PinnedMemory::set_open(const std::byte* begin, size_t bytes, bool open) const {
  const auto offset = static_cast<size_t>(begin - host_);
  const size_t first = round_up(offset);
  const size_t end = offset + bytes == bytes_ ? mapped_bytes_ : (offset + bytes) / kPage * kPage;
  if (first < end) mprotect(host_ + first, end - first, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

uint64_t HostBytes::checksum() const {
  const auto* const view = reinterpret_cast<const char*>(memory->device_view(begin));
  return std::hash<std::string_view>{}(std::string_view(view, bytes));
}

void watch_closed_memory(bool (*found)(const void* address)) {
  found_closed = found;
  struct sigaction current = {};
  sigaction(SIGSEGV, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_segmentation_fault) return;
  earlier_handler = current;
  struct sigaction handler = {};
  handler.sa_sigaction = on_segmentation_fault;
  handler.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &handler, nullptr);
}

}  // namespace tessera::virtual_gpu
