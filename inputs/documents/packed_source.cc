// SPDX-License-Identifier: Apache-2.0
#include "inputs/documents/packed_source.h"

#include <algorithm>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr size_t kPackedBytes = 1 << 16;

}  // namespace

PackedSource::PackedSource(std::unique_ptr<ByteSource> packed) : packed_(std::move(packed)) {}

size_t PackedSource::read(char* into, size_t size) {
  if (size == 0) return 0;
  const size_t got = unpack(into, size);
  position_ += static_cast<int64_t>(got);
  return got;
}

void PackedSource::seek(int64_t offset) {
  if (offset < position_) {
    packed_->seek(0);
    next_ = end_ = nullptr;
    position_ = 0;
    begin_again();
  }
  std::vector<char> passed(position_ < offset ? kPackedBytes : 0);
  while (position_ < offset) {
    const auto left = static_cast<size_t>(offset - position_);
    if (read(passed.data(), std::min(left, passed.size())) == 0)
      fail("{}: holds {} bytes, but is to be read on from byte {}; it was longer once", where(),
           position_, offset);
  }
}

bool PackedSource::refill() {
  buffer_.resize(kPackedBytes);
  const size_t got = packed_->read(buffer_.data(), buffer_.size());
  next_ = buffer_.data();
  end_ = next_ + got;
  return got > 0;
}

}  // namespace tessera
