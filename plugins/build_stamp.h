// SPDX-License-Identifier: Apache-2.0
// The build stamp of a shared library. A plugin compiled with other headers or another compiler
// would misread our objects, so it is rejected before its code runs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// "0.1.0, interface 3f2a9c1d04b7, g++ 12.2.0"
std::string_view build_stamp();

// The stamp in a plugin's file, found in its bytes; nullopt if it has none.
std::optional<std::string> stamp_in_file(const std::filesystem::path& file);

// Error, with the file and both stamps, unless the file is a complete shared library for this
// machine with our stamp.
void check_plugin_file(const std::filesystem::path& file);

}  // namespace tessera
