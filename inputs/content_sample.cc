// SPDX-License-Identifier: Apache-2.0
#include "inputs/content_sample.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "core/base/crc32c.h"
#include "core/io/file.h"
#include "inputs/shuffle.h"

namespace tessera {

std::string ContentSample::entry(
    std::string_view name, int64_t size,
    const std::function<void(int64_t offset, std::span<std::byte>)>& read) {
  constexpr int64_t kWholeFile = int64_t{64} << 20, kAllWhole = int64_t{1} << 30;
  constexpr int64_t kBlock = 4096, kBlocks = 64, kReadAtOnce = int64_t{1} << 20;
  const bool whole = size <= kWholeFile && (whole_bytes_ += size) <= kAllWhole;
  const int64_t step = whole ? kReadAtOnce : kBlock;
  std::vector<std::byte> block(static_cast<size_t>(std::min(step, size)));
  uint32_t crc = 0;
  const auto add = [&](int64_t offset) {
    const auto part = std::span(block).first(static_cast<size_t>(std::min(step, size - offset)));
    read(offset, part);
    crc = crc32c(part, crc);
  };
  if (whole) {
    for (int64_t offset = 0; offset < size; offset += step) add(offset);
  } else {
    const uint64_t key = mix_bits(crc32c(std::as_bytes(std::span(name))), seed_);
    const auto blocks = static_cast<uint64_t>((size + kBlock - 1) / kBlock);
    for (int64_t i = 0; i < kBlocks; ++i)
      add(kBlock * static_cast<int64_t>(mix_bits(static_cast<uint64_t>(i), key) % blocks));
  }
  return fmt::format("{} bytes, crc {:08x}", size, crc);
}

std::string ContentSample::entry_of_file(std::string_view name, const std::filesystem::path& path) {
  const ByteFile file = ByteFile::open(path);
  return entry(name, file.size(),
               [&](int64_t offset, std::span<std::byte> bytes) { file.read_at(offset, bytes); });
}

}  // namespace tessera
