// SPDX-License-Identifier: Apache-2.0
#include "tasks/scratch_directory.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "core/base/error.h"

namespace tessera {

ScratchDirectory::ScratchDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "tessera_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) fail("{}: cannot be made: {}", name, std::strerror(errno));
  path_ = name;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tessera
