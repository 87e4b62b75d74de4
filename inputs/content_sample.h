// SPDX-License-Identifier: Apache-2.0
// The data that hosts compare at the start to find out that their files of equal names differ, and
// that manifests have of files: sizes and checksums. docs/data.md lists its limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

// Samples the files of one input. They are given in order.
class ContentSample {
 public:
  explicit ContentSample(uint64_t seed) : seed_(seed) {}

  // Returns the size and the checksum of all bytes, or of 64 blocks of 4 KiB if there are more than
  // 64 MiB or the files before have 1 GiB. The seed and the file's name choose the blocks. `read`
  // fills the span from an offset, which is a multiple of 4 KiB.
  std::string entry(std::string_view name, int64_t size,
                    const std::function<void(int64_t offset, std::span<std::byte>)>& read);
  std::string entry_of_file(std::string_view name, const std::filesystem::path& path);

 private:
  uint64_t seed_;
  int64_t whole_bytes_ = 0;
};

}  // namespace tessera
