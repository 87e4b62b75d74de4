// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/piece_documents.h"

#include <algorithm>
#include <cstring>

namespace tessera {
namespace {

constexpr size_t kPieceBlock = 1 << 16;
constexpr size_t kLargeBuffer = size_t{1} << 24;  // A larger buffer is freed after use.

}  // namespace

PieceReader::PieceReader(std::unique_ptr<ByteSource> source, std::string separator, int64_t limit)
    : source_(std::move(source)),
      separator_(std::move(separator)),
      limit_(static_cast<size_t>(limit)) {}

std::optional<Piece> PieceReader::next() {
  begin_ += given_;
  given_ = 0;
  shrink_buffer();
  size_t searched = 0;  // No separator begins in the first `searched` bytes.
  for (;;) {
    const size_t found = end_ > begin_ ? find_separator(begin_ + searched) : std::string::npos;
    const bool is_found = found != std::string::npos;
    const size_t size = (is_found ? found : end_) - begin_;
    if (size > limit_) {
      skip_piece();
      return Piece{{}, true};
    }
    if (is_found || !fill()) {
      if (!is_found && size == 0) return std::nullopt;
      given_ = size + (is_found ? separator_.size() : 0);
      offset_ += static_cast<int64_t>(given_);
      return Piece{{buffer_.data() + begin_, size}, false};
    }
    searched = size < separator_.size() ? 0 : size - (separator_.size() - 1);
  }
}

bool PieceReader::skip() {
  begin_ += given_;
  given_ = 0;
  return skip_piece();
}

void PieceReader::seek(int64_t offset) {
  source_->seek(offset);
  begin_ = end_ = given_ = 0;
  offset_ = offset;
  is_at_end_ = false;
}

bool PieceReader::fill() {
  if (is_at_end_) return false;
  if (begin_ == end_) begin_ = end_ = 0;
  if (buffer_.size() < end_ + kPieceBlock + kPadding && begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < end_ + kPieceBlock + kPadding)
    buffer_.resize(std::max(2 * end_, end_ + kPieceBlock) + kPadding);
  const size_t got = source_->read(buffer_.data() + end_, buffer_.size() - end_ - kPadding);
  end_ += got;
  is_at_end_ = got == 0;
  return got > 0;
}

size_t PieceReader::find_separator(size_t from) const {
  if (separator_.empty()) return std::string::npos;
  const char* const start = buffer_.data() + from;
  const size_t size = end_ - from;
  const void* const found = separator_.size() == 1
                                ? std::memchr(start, separator_[0], size)
                                : ::memmem(start, size, separator_.data(), separator_.size());
  if (found == nullptr) return std::string::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - buffer_.data());
}

void PieceReader::drop(size_t size) {
  begin_ += size;
  offset_ += static_cast<int64_t>(size);
}

bool PieceReader::skip_piece() {
  bool has_passed = false;
  for (;;) {
    if (end_ > begin_) {
      has_passed = true;
      const size_t found = find_separator(begin_);
      if (found != std::string::npos) {
        drop(found + separator_.size() - begin_);
        return true;
      }
      const size_t keep = separator_.empty() ? 0 : separator_.size() - 1;
      if (end_ - begin_ > keep) drop(end_ - begin_ - keep);
    }
    if (!fill()) {
      drop(end_ - begin_);
      return has_passed;
    }
  }
}

void PieceReader::shrink_buffer() {
  if (buffer_.size() <= kLargeBuffer || end_ - begin_ >= kPieceBlock) return;
  std::vector<char> smaller(2 * kPieceBlock + kPadding);
  std::memcpy(smaller.data(), buffer_.data() + begin_, end_ - begin_);
  buffer_ = std::move(smaller);
  end_ -= begin_;
  begin_ = 0;
}

}  // namespace tessera
