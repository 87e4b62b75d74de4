// SPDX-License-Identifier: Apache-2.0
#include "inputs/building/token_bin.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr int64_t kHeaderBytes = 256 * 4;

// llm.c's dev/data/data_common.py.
struct Kind {
  int32_t magic;
  int32_t version;
  int64_t token_bytes;
};
constexpr Kind kKinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

template <typename T>
T load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

}  // namespace

TokenBinReader::TokenBinReader(std::unique_ptr<ByteSource> source, int64_t file_bytes,
                               int64_t vocab_size)
    : source_(std::move(source)), vocab_size_(vocab_size) {
  read_header(file_bytes);
  seek(0);
}

void TokenBinReader::read_whole(char* into, size_t size) {
  for (size_t have = 0; have < size;) {
    const size_t got = source_->read(into + have, size - have);
    if (got == 0)
      fail("{}: cut short, at token {} of {}", source_->where(), position_, num_tokens_);
    have += got;
  }
}

void TokenBinReader::read_header(int64_t file_bytes) {
  const std::string& where = source_->where();
  int32_t header[3] = {};
  if (file_bytes >= kHeaderBytes) {
    char bytes[sizeof(header)];
    read_whole(bytes, sizeof(bytes));
    std::memcpy(header, bytes, sizeof(header));
  }
  for (const Kind& kind : kKinds) {
    if (header[0] != kind.magic) continue;
    if (header[1] != kind.version)
      fail("{}: llm.c's token file of version {}; version {} is read", where, header[1],
           kind.version);
    header_bytes_ = kHeaderBytes;
    token_bytes_ = kind.token_bytes;
    num_tokens_ = header[2];
    if (num_tokens_ < 0 || header_bytes_ + num_tokens_ * token_bytes_ != file_bytes)
      fail("{}: its header tells of {} tokens of {} bytes, but the file has {} bytes", where,
           header[2], token_bytes_, file_bytes);
    return;
  }
  if (file_bytes % token_bytes_ != 0)
    fail("{}: has {} bytes, which is no whole number of 2-byte tokens (nanoGPT's .bin)", where,
         file_bytes);
  num_tokens_ = file_bytes / token_bytes_;
}

void TokenBinReader::seek(int64_t token) {
  if (token > num_tokens_)
    fail("{}: has {} tokens, but is to be read on from token {}; it was longer once",
         source_->where(), num_tokens_, token);
  source_->seek(header_bytes_ + token * token_bytes_);
  position_ = token;
}

size_t TokenBinReader::read(std::span<int32_t> ids) {
  const auto count =
      static_cast<size_t>(std::min(static_cast<int64_t>(ids.size()), num_tokens_ - position_));
  buffer_.resize(count * static_cast<size_t>(token_bytes_));
  read_whole(buffer_.data(), buffer_.size());
  for (size_t i = 0; i < count; ++i) {
    const char* const at = buffer_.data() + i * static_cast<size_t>(token_bytes_);
    const int64_t id = token_bytes_ == 2 ? load<uint16_t>(at) : load<uint32_t>(at);
    if (id >= vocab_size_)
      fail("{}: token {} has id {}, but the vocabulary has {}: another tokenizer made the file",
           source_->where(), position_ + static_cast<int64_t>(i), id, vocab_size_);
    ids[i] = static_cast<int32_t>(id);
  }
  position_ += static_cast<int64_t>(count);
  return count;
}

}  // namespace tessera
