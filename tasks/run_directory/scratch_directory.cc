// SPDX-License-Identifier: Apache-2.0
#include "tasks/run_directory/scratch_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "core/base/error.h"
#include "inputs/flat_tokens/text_input.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// The first process on this host.
int leader_of_host(const ProcessGroup& processes) {
  int leader = 0;
  while (processes.host(leader) != processes.host(processes.rank())) ++leader;
  return leader;
}

fs::path make_directory() {
  std::string name = (fs::temp_directory_path() / "tessera_dry_run_XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    fail("{}: cannot make a temporary directory (TMPDIR): {}", name, std::strerror(errno));
  return name;
}

}  // namespace

ScratchDirectory::ScratchDirectory(const fs::path& run_directory, ProcessGroup& processes) {
  const int leader = leader_of_host(processes);
  is_own_ = processes.rank() == leader;
  if (is_own_) path_ = make_directory();
  try {
    // A link, so that replacing the file replaces only the link.
    const std::string_view frozen = kCorpusSnapshot.substr(kRunDirectory.size());
    if (is_own_ && !run_directory.empty() && fs::exists(run_directory / frozen))
      fs::create_symlink(fs::absolute(run_directory / frozen), path_ / frozen);
    path_ = processes.all_gather(path_.string(), "where a dry run keeps its inputs")[leader];
  } catch (...) {
    remove();
    throw;
  }
}

ScratchDirectory::~ScratchDirectory() { remove(); }

void ScratchDirectory::remove() {
  std::error_code ignored;
  if (is_own_) fs::remove_all(path_, ignored);
}

}  // namespace tessera
