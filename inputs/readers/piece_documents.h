// SPDX-License-Identifier: Apache-2.0
// Documents that are pieces of a text: lines, or what a separator divides. Of a stream of bytes one
// piece is held at a time, of bounded length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inputs/readers/byte_source.h"
#include "inputs/readers/record_documents.h"

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

class PieceDocuments : public RecordDocuments {
 public:
  PieceDocuments(const DocumentFormat& format, std::unique_ptr<ByteSource> source,
                 std::string separator, const ReadOptions& options)
      : RecordDocuments(format, options),
        pieces_(std::move(source), std::move(separator), options.max_document_bytes) {}

  int64_t bytes_read() const final { return pieces_.source().bytes_read(); }

 protected:
  virtual Record parse(std::string_view piece) = 0;

  std::optional<Record> read_record(int64_t number) final {
    const std::optional<Piece> piece = pieces_.next();
    if (!piece) return std::nullopt;
    if (piece->is_too_long) return too_long();
    constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";
    std::string_view text = piece->text;
    if (number == 0 && options().require_utf8 && text.starts_with(kUtf8Mark))
      text.remove_prefix(kUtf8Mark.size());
    return parse(text);
  }
  bool skip_record() final { return pieces_.skip(); }
  int64_t offset() const final { return pieces_.offset(); }
  void seek_record(const ShardPosition& position) final { pieces_.seek(position.offset); }
  const std::string& where() const final { return pieces_.source().where(); }

 private:
  PieceReader pieces_;
};

}  // namespace tessera
