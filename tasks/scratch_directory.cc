// SPDX-License-Identifier: Apache-2.0
#include "tasks/scratch_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "core/base/error.h"
#include "inputs/text_input.h"

namespace tessera {

namespace fs = std::filesystem;

ScratchDirectory::ScratchDirectory(const fs::path& run_directory) {
  std::string name = (fs::temp_directory_path() / "tessera_dry_run_XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    fail("{}: cannot make a temporary directory (TMPDIR): {}", name, std::strerror(errno));
  path_ = name;
  // A link: what replaces the file replaces the link alone.
  const std::string_view frozen = kFrozenCorpus.substr(kRunDirectory.size());
  if (!run_directory.empty() && fs::exists(run_directory / frozen))
    fs::create_symlink(fs::absolute(run_directory / frozen), path_ / frozen);
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace tessera
