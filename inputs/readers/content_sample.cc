// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/content_sample.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/crc32c.h"
#include "core/io/file.h"
#include "inputs/base_input.h"
#include "inputs/shuffle.h"

namespace tessera {
namespace {

constexpr int64_t kMostEntries = 64;
constexpr int64_t kMostWholeBytes = int64_t{1} << 30;  // Of all files.

}  // namespace

std::string content_text(int64_t bytes, bool whole, uint64_t key,
                         const std::function<void(int64_t, std::span<std::byte>)>& read) {
  uint32_t crc = 0;
  std::vector<std::byte> block(whole ? size_t{1} << 20 : size_t{kSampledBlockBytes});
  const auto add = [&](int64_t begin) {
    const auto size = std::min(static_cast<int64_t>(block.size()), bytes - begin);
    const auto part = std::span(block).first(static_cast<size_t>(size));
    read(begin, part);
    crc = crc32c(part, crc);
  };
  if (whole) {
    for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(block.size())) add(at);
  } else {
    const auto blocks =
        static_cast<uint64_t>((bytes + kSampledBlockBytes - 1) / kSampledBlockBytes);
    for (uint64_t i = 0; i < kSampledBlocks; ++i)
      add(static_cast<int64_t>(mix_bits(i, key) % blocks) * kSampledBlockBytes);
  }
  return fmt::format("{} bytes, {} {:08x}", bytes, whole ? "crc" : "sample", crc);
}

std::map<std::string, std::string> content_entries(const std::vector<TextFile>& files,
                                                   uint64_t seed) {
  std::map<std::string, std::string> entries;
  const auto per_entry = (files.size() + kMostEntries - 1) / kMostEntries;
  int64_t whole_bytes = 0;
  for (size_t first = 0; first < files.size(); first += per_entry) {
    const size_t end = std::min(files.size(), first + per_entry);
    std::string key = std::string(kContentPrefix) + files[first].name;
    if (end - first > 1) key += " to " + files[end - 1].name;
    std::string& entry = entries[key];
    for (size_t i = first; i < end; ++i) {
      const ByteFile file = ByteFile::open(files[i].path);
      const int64_t size = file.size();
      const bool whole = size <= kWholeBytes && (whole_bytes += size) <= kMostWholeBytes;
      const std::string& name = files[i].name;
      const uint64_t place = mix_bits(crc32c(std::as_bytes(std::span(name))), seed);
      entry =
          content_text(size, whole, place,
                       [&](int64_t at, std::span<std::byte> bytes) { file.read_at(at, bytes); }) +
          (entry.empty() ? "" : fmt::format("; {:08x}", crc32c(std::as_bytes(std::span(entry)))));
    }
  }
  return entries;
}

}  // namespace tessera
