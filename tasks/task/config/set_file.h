// SPDX-License-Identifier: Apache-2.0
// A file of settings: what --set_file reads and --search writes. TOML, with the arguments of --set
// in their order:
//
//   set = [
//     "strategy=fsdp",
//     "mesh.ici_mesh_shape=[1,8,1]",
//   ]
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Each "path=value". Error with the file for one that cannot be read, is not TOML, or has anything
// else than a list `set` of strings.
std::vector<std::string> read_set_file(const std::filesystem::path& file);

// The text of such a file; `heading` becomes comment lines.
std::string set_file_text(const std::vector<std::string>& sets, std::string_view heading);

}  // namespace tessera
