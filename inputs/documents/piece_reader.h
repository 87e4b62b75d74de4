// SPDX-License-Identifier: Apache-2.0
// A stream of bytes parted into pieces by a separator: lines, or documents of a text file. Holds
// one piece at a time, of a length that has a limit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/documents/byte_source.h"

namespace tessera {

struct Piece {
  std::string_view text;     // Without the separator; until the next call.
  bool is_too_long = false;  // Beyond the limit: passed over, and `text` is empty.
};

class PieceReader {
 public:
  // So many bytes behind a piece can be read, whatever they are: parsers read in strides.
  static constexpr size_t kPadding = 64;

  // An empty separator makes all there is one piece.
  PieceReader(std::unique_ptr<ByteSource> source, std::string separator, int64_t limit);

  std::optional<Piece> next();
  bool skip();                                // Past the next piece; false at the end.
  int64_t offset() const { return offset_; }  // Of the first byte after the last piece.
  void seek(int64_t offset);                  // To where a piece begins.
  int64_t bytes_read() const { return source_->bytes_read(); }
  const std::string& where() const { return source_->where(); }

 private:
  bool fill();  // More bytes behind those held; false at the end.
  // Where the separator is from `from` on; npos if it is not among the bytes held.
  size_t find_separator(size_t from) const;
  void drop(size_t size);
  bool pass_over();
  void give_back_memory();  // That a long piece took.

  std::unique_ptr<ByteSource> source_;
  std::string separator_;
  size_t limit_;
  std::vector<char> buffer_;
  size_t begin_ = 0;  // The bytes held are [begin_, end_) of the buffer.
  size_t end_ = 0;
  size_t given_ = 0;  // Bytes of the last piece, which go at the next call.
  int64_t offset_ = 0;
  bool is_at_end_ = false;  // Of the source.
};

}  // namespace tessera
