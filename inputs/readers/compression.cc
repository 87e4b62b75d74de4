// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/compression.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr size_t kCompressedBlock = 1 << 16;

// By name. Constructed by the first registration.
std::map<std::string_view, Compression>& registered_compressions() {
  static std::map<std::string_view, Compression> registered;
  return registered;
}

}  // namespace

CompressionRegistrar::CompressionRegistrar(const Compression& compression) {
  registered_compressions().emplace(compression.name, compression);
}

const Compression* compression_by_name(const std::filesystem::path& path) {
  const std::string extension = lower_extension(path);
  for (const auto& [unused, compression] : registered_compressions())
    if (compression.extension == extension) return &compression;
  return nullptr;
}

const Compression* compression_by_magic(std::string_view head) {
  for (const auto& [unused, it] : registered_compressions())
    if (head.size() >= it.magic_offset && head.substr(it.magic_offset).starts_with(it.magic))
      return &it;
  return nullptr;
}

std::filesystem::path name_without_compression(const std::filesystem::path& path) {
  return compression_by_name(path) == nullptr ? path : path.stem();
}

size_t CompressedSource::read(char* into, size_t size) {
  if (size == 0) return 0;
  for (;;) {
    const bool has_bytes = next_ != end_ || refill();
    if (!has_bytes && !holds_output_) {
      if (is_inside_ || !has_begun_) fail_truncated();
      return 0;
    }
    const size_t got = decompress(into, size);
    position_ += static_cast<int64_t>(got);
    if (got > 0) return got;
  }
}

void CompressedSource::seek(int64_t offset) {
  if (offset < position_) {
    compressed_->seek(0);
    next_ = end_ = nullptr;
    position_ = 0;
    is_inside_ = has_begun_ = holds_output_ = false;
    restart();
  }
  std::vector<char> skipped(position_ < offset ? kCompressedBlock : 0);
  while (position_ < offset) {
    const auto left = static_cast<size_t>(offset - position_);
    if (read(skipped.data(), std::min(left, skipped.size())) == 0)
      fail("{}: has {} decompressed bytes, cannot resume at byte {}; the file has been truncated",
           where(), position_, offset);
  }
}

bool CompressedSource::refill() {
  buffer_.resize(kCompressedBlock);
  const size_t got = compressed_->read(buffer_.data(), buffer_.size());
  next_ = buffer_.data();
  end_ = next_ + got;
  return got > 0;
}

void CompressedSource::fail_truncated() const {
  fail("{}: the {} stream is truncated after {} bytes of text; copy or download it again", where(),
       format_, position_);
}

void CompressedSource::fail_damaged(const char* reason) const {
  fail("{}: damaged {} stream after {} bytes of text: {}", where(), format_, position_, reason);
}

void CompressedSource::fail_memory() const { fail("{}: out of memory for decompression", where()); }

}  // namespace tessera
