// SPDX-License-Identifier: Apache-2.0
// Splits a byte stream at a separator into pieces: lines, or documents of a text file. Holds one
// piece at a time, of bounded length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/readers/byte_source.h"

namespace tessera {

struct Piece {
  std::string_view text;     // Without the separator; valid until the next call.
  bool is_too_long = false;  // Longer than the limit: skipped, and `text` is empty.
};

class PieceReader {
 public:
  // Readable bytes after a piece: SIMD parsers read past the end.
  static constexpr size_t kPadding = 64;

  // With an empty separator, the whole stream is one piece.
  PieceReader(std::unique_ptr<ByteSource> source, std::string separator, int64_t limit);

  std::optional<Piece> next();  // nullopt at the end.
  bool skip();                  // Skips the next piece; false at the end.
  // Offset of the first byte after the last piece.
  int64_t offset() const { return offset_; }
  void seek(int64_t offset);  // To the beginning of a piece.
  const ByteSource& source() const { return *source_; }

 private:
  bool fill();  // Reads more bytes; false at the end.
  // Returns the position of the next separator in the buffer; npos if the buffer has none.
  size_t find_separator(size_t from) const;
  void drop(size_t size);
  // Skips a piece; keeps at most a partial separator in memory.
  bool skip_piece();
  void shrink_buffer();  // Frees the memory of a long piece.

  std::unique_ptr<ByteSource> source_;
  std::string separator_;
  size_t limit_;
  std::vector<char> buffer_;
  size_t begin_ = 0;  // The buffer holds bytes [begin_, end_).
  size_t end_ = 0;
  size_t given_ = 0;  // Bytes of the last piece, dropped at the next call.
  int64_t offset_ = 0;
  bool is_at_end_ = false;  // End of the source reached.
};

}  // namespace tessera
