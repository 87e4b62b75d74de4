// SPDX-License-Identifier: Apache-2.0
#include "core/io/held_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "core/base/error.h"

namespace tessera {

HeldDirectory::HeldDirectory(const std::filesystem::path& directory)
    : descriptor_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail("{}: cannot open: {}", directory.string(), std::strerror(errno));
  path_ = fmt::format("/proc/self/fd/{}", descriptor_);
  std::error_code ignored;
  if (!std::filesystem::exists(path_, ignored)) path_ = directory;
}

HeldDirectory::~HeldDirectory() { ::close(descriptor_); }

}  // namespace tessera
