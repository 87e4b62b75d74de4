// SPDX-License-Identifier: Apache-2.0
// The program that the tracker `wandb` runs: plugins/wandb, compiled into the library.
#pragma once

#include <string_view>
#include <vector>

namespace tessera {

struct WandbFile {
  std::string_view name;
  std::string_view text;
};
// The file of plugins/wandb (cmake/EmbedFiles.cmake).
std::vector<WandbFile> wandb_files();

}  // namespace tessera
