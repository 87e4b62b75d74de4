// SPDX-License-Identifier: Apache-2.0
#include "inputs/validation_split.h"

#include <algorithm>
#include <span>

#include "core/base/crc32c.h"
#include "inputs/shuffle.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

uint64_t hash_of_text(std::string_view text) {
  return mix_bits(crc32c(std::as_bytes(std::span(text))), text.size());
}

}  // namespace

bool in_validation_split(std::string_view text, double fraction) {
  if (fraction <= 0.0) return false;
  return static_cast<double>(hash_of_text(text) >> 11) * 0x1p-53 < fraction;
}

std::set<fs::path> validation_files(const std::vector<fs::path>& files, const fs::path& root,
                                    double fraction) {
  struct HashedFile {
    uint64_t hash = 0;
    const fs::path* path = nullptr;
    double bytes = 0.0;
  };
  std::vector<HashedFile> hashed;
  double total = 0.0;
  for (const fs::path& file : files) {
    const auto bytes = static_cast<double>(fs::file_size(file));
    hashed.push_back({hash_of_text(fs::relative(file, root).generic_string()), &file, bytes});
    total += bytes;
  }
  std::sort(hashed.begin(), hashed.end(),
            [](const HashedFile& a, const HashedFile& b) { return a.hash < b.hash; });
  std::set<fs::path> chosen;
  double bytes = 0.0;
  for (const HashedFile& file : hashed) {
    // Skips a file that would overshoot by more than half its size.
    if (bytes + 0.5 * file.bytes >= fraction * total) continue;
    bytes += file.bytes;
    chosen.insert(*file.path);
  }
  return chosen;
}

}  // namespace tessera
