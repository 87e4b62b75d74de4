// SPDX-License-Identifier: Apache-2.0
// Which data belongs to the validation split.
#pragma once

#include <filesystem>
#include <set>
#include <string_view>
#include <vector>

namespace tessera {

// Whether a document belongs to the split, which holds about `fraction` of all distinct texts. The
// text alone decides, so the split does not depend on order, shard layout or format, and equal
// documents are in the same split.
bool in_validation_split(std::string_view text, double fraction);

// Whole files of about `fraction` of all bytes, chosen by a hash of their names below `root`.
std::set<std::filesystem::path> validation_files(const std::vector<std::filesystem::path>& files,
                                                 const std::filesystem::path& root,
                                                 double fraction);

}  // namespace tessera
