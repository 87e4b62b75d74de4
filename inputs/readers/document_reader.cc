// SPDX-License-Identifier: Apache-2.0
#include "inputs/readers/document_reader.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/lenient_json.h"
#include "inputs/readers/byte_source.h"
#include "inputs/readers/foreign_format.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {

namespace {

constexpr size_t kPieceBlock = 1 << 16;
constexpr size_t kLargeBuffer = size_t{1} << 24;  // A larger buffer is freed after use.

struct Piece {
  std::string_view text;     // Without the separator; valid until the next call.
  bool is_too_long = false;  // Longer than the limit: skipped, and `text` is empty.
};

// Splits a byte stream at a separator into pieces: lines, or documents of a text file. Holds one
// piece at a time, of bounded length.
class PieceReader {
 public:
  // Readable bytes after a piece: SIMD parsers read past the end.
  static constexpr size_t kPadding = 64;

  // With an empty separator, the whole stream is one piece.
  PieceReader(std::unique_ptr<ByteSource> source, std::string separator, int64_t limit)
      : source_(std::move(source)),
        separator_(std::move(separator)),
        limit_(static_cast<size_t>(limit)) {}

  std::optional<Piece> next() {
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

  // Skips the next piece; false at the end.
  bool skip() {
    begin_ += given_;
    given_ = 0;
    return skip_piece();
  }

  // Offset of the first byte after the last piece.
  int64_t offset() const { return offset_; }
  // Moves to the beginning of a piece.
  void seek(int64_t offset) {
    source_->seek(offset);
    begin_ = end_ = given_ = 0;
    offset_ = offset;
    is_at_end_ = false;
  }
  int64_t bytes_read() const { return source_->bytes_read(); }
  const std::string& where() const { return source_->where(); }

 private:
  // Reads more bytes; false at the end.
  bool fill() {
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

  // Returns the position of the next separator in the buffer; npos if the buffer has none.
  size_t find_separator(size_t from) const {
    if (separator_.empty()) return std::string::npos;
    const char* const start = buffer_.data() + from;
    const size_t size = end_ - from;
    const void* const found = separator_.size() == 1
                                  ? std::memchr(start, separator_[0], size)
                                  : ::memmem(start, size, separator_.data(), separator_.size());
    if (found == nullptr) return std::string::npos;
    return static_cast<size_t>(static_cast<const char*>(found) - buffer_.data());
  }

  void drop(size_t size) {
    begin_ += size;
    offset_ += static_cast<int64_t>(size);
  }

  // Skips a piece; keeps at most a partial separator in memory.
  bool skip_piece() {
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

  // Frees the memory of a long piece.
  void shrink_buffer() {
    if (buffer_.size() <= kLargeBuffer || end_ - begin_ >= kPieceBlock) return;
    std::vector<char> smaller(2 * kPieceBlock + kPadding);
    std::memcpy(smaller.data(), buffer_.data() + begin_, end_ - begin_);
    buffer_ = std::move(smaller);
    end_ -= begin_;
    begin_ = 0;
  }

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

constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";

// The result of parsing a piece.
struct Parsed {
  std::optional<std::string> text;
  std::string fault;  // Error text; "" if the piece is not a document.
};

std::string encoding_fault(std::string_view text) {
  const size_t at = valid_prefix(text);
  return fmt::format("not UTF-8: byte {:#04x} at byte {} of the document; convert it",
                     at < text.size() ? static_cast<unsigned char>(text[at]) : 0, at);
}

class PieceDocuments : public DocumentReader {
 public:
  PieceDocuments(std::unique_ptr<ByteSource> source, std::string separator,
                 const ReadOptions& options)
      : options_(options),
        pieces_(std::move(source), std::move(separator), options.max_document_bytes) {
    CHECK(options.every >= 1 && options.first >= 0 && options.first < options.every);
  }

  std::optional<std::string> next() final {
    while (pass_others()) {
      const std::optional<Piece> piece = pieces_.next();
      if (!piece) break;
      const int64_t number = position_.document;
      position_ = {number + 1, pieces_.offset()};
      Parsed parsed = piece->is_too_long ? too_long(number) : parse(piece->text, number);
      if (parsed.text) return std::move(parsed.text);
      if (!parsed.fault.empty()) skip_or_fail(options_.corrupt_records, parsed.fault, &corrupt_);
    }
    return std::nullopt;
  }

  bool skip() final { return pass_others() && pass_one(); }
  ShardPosition position() const final { return position_; }
  void seek(const ShardPosition& position) override {
    pieces_.seek(position.offset);
    position_ = position;
  }
  const CorruptRecordCount& corrupt() const final { return corrupt_; }
  int64_t bytes_read() const final { return pieces_.bytes_read(); }

 protected:
  virtual Parsed parse(std::string_view piece, int64_t number) = 0;
  virtual DocumentFormat format() const = 0;
  std::string place(int64_t number) const {
    return document_place(pieces_.where(), format(), options_, number);
  }
  const ReadOptions& options() const { return options_; }

 private:
  // Skips the documents of other readers; false at the end.
  bool pass_others() {
    while (position_.document % options_.every != options_.first)
      if (!pass_one()) return false;
    return true;
  }
  bool pass_one() {
    if (!pieces_.skip()) return false;
    position_ = {position_.document + 1, pieces_.offset()};
    return true;
  }
  Parsed too_long(int64_t number) const {
    return {std::nullopt, fmt::format("{}: the document has more than {} bytes "
                                      "(max_document_bytes)",
                                      place(number), options_.max_document_bytes)};
  }

  ReadOptions options_;
  PieceReader pieces_;
  ShardPosition position_;
  CorruptRecordCount corrupt_;
};

class TextDocuments final : public PieceDocuments {
 public:
  TextDocuments(std::unique_ptr<ByteSource> source, const ReadOptions& options)
      : PieceDocuments(std::move(source), options.separator, options) {}

 protected:
  Parsed parse(std::string_view piece, int64_t number) override {
    if (!options().require_utf8) return {std::string(piece), ""};
    if (number == 0 && piece.starts_with(kUtf8Mark)) piece.remove_prefix(kUtf8Mark.size());
    if (simdjson::validate_utf8(piece.data(), piece.size())) return {std::string(piece), ""};
    std::string at = place(number);
    if (options().separator.empty()) {
      const std::string_view before = piece.substr(0, valid_prefix(piece));
      at += fmt::format(":{}", 1 + std::count(before.begin(), before.end(), '\n'));
    }
    return {std::nullopt, fmt::format("{}: {}", at, encoding_fault(piece))};
  }
  DocumentFormat format() const override { return DocumentFormat::kText; }
};

class JsonLineDocuments final : public PieceDocuments {
 public:
  JsonLineDocuments(std::unique_ptr<ByteSource> source, const ReadOptions& options)
      : PieceDocuments(std::move(source), "\n", options) {}

 protected:
  Parsed parse(std::string_view line, int64_t number) override {
    if (number == 0 && line.starts_with(kUtf8Mark)) line.remove_prefix(kUtf8Mark.size());
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return {};
    simdjson::dom::element root;
    // simdjson reads past the end of the line.
    static_assert(PieceReader::kPadding >= simdjson::SIMDJSON_PADDING);
    auto error = parser_.parse(line.data(), line.size(), false).get(root);
    std::optional<std::string> lenient;
    if (error != simdjson::SUCCESS && error != simdjson::UTF8_ERROR) {
      lenient = lenient_json(line, Surrogates::kReplace);
      if (lenient) error = parser_.parse(*lenient).get(root);
    }
    Parsed parsed =
        error == simdjson::SUCCESS ? field_of(root) : Parsed{std::nullopt, json_fault(line, error)};
    // An escaped half of a surrogate pair is not valid text.
    if (parsed.text && line.find("\\u") != std::string_view::npos &&
        !simdjson::validate_utf8(parsed.text->data(), parsed.text->size()))
      parsed = {std::nullopt, encoding_fault(*parsed.text)};
    if (parsed.text && lenient && parsed.text->find(kNotJson) != std::string::npos)
      parsed = {std::nullopt, fmt::format("the field '{}' is not a text: it is NaN, Infinity or "
                                          "1e999, or it has half of a surrogate pair (\\ud800)",
                                          options().text_field)};
    if (!parsed.fault.empty()) parsed.fault = fmt::format("{}: {}", place(number), parsed.fault);
    if (parser_.capacity() > kLargeParser) parser_ = simdjson::dom::parser();
    return parsed;
  }
  DocumentFormat format() const override { return DocumentFormat::kJsonLines; }

 private:
  static constexpr size_t kLargeParser = size_t{1} << 24;

  static std::string json_fault(std::string_view line, simdjson::error_code error) {
    if (error == simdjson::UTF8_ERROR) return encoding_fault(line);
    return fmt::format("not valid JSON: {} Each line must be one complete object{}",
                       simdjson::error_message(error),
                       line.starts_with("[") ? "; jq -c '.[]' makes lines of a list" : "");
  }

  static std::string_view kind_of(const simdjson::dom::element& element) {
    if (element.is_object()) return "an object";
    if (element.is_array()) return "a list";
    if (element.is_string()) return "a string";
    if (element.is_bool()) return "a boolean";
    return element.is_null() ? "null" : "a number";
  }

  Parsed field_of(const simdjson::dom::element& root) const {
    const std::string& field = options().text_field;
    simdjson::dom::object object;
    if (root.get(object) != simdjson::SUCCESS)
      return {std::nullopt,
              fmt::format(
                  "the line is {}, expected an object with the field '{}'{}", kind_of(root), field,
                  root.is_array() ? "; jq -c '.[]' makes a line of each of its elements" : "")};
    // The last member of this name counts, as in Python.
    std::optional<simdjson::dom::element> found;
    for (const auto& member : object)
      if (member.key == field) found = member.value;
    if (!found) return {std::nullopt, missing_field(object)};
    const simdjson::dom::element value = *found;
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS)
      return {std::nullopt,
              fmt::format("the field '{}' is {}, expected a string", field, kind_of(value))};
    return {std::string(text), ""};
  }

  std::string missing_field(const simdjson::dom::object& object) const {
    constexpr size_t kMostShown = 8;
    constexpr size_t kLongestShown = 40;
    const std::string& field = options().text_field;
    std::vector<std::string> names;
    std::string_view longest;  // The key of the string that is likely to be the text.
    size_t most = 0;
    std::string advice;
    for (const auto& member : object) {
      if (names.size() < kMostShown) names.emplace_back(member.key.substr(0, kLongestShown));
      std::string_view text;
      if (member.value.get(text) == simdjson::SUCCESS && text.size() > most) {
        most = text.size();
        longest = member.key;
      }
      // "meta.text" as well as "text".
      const std::string prefix = fmt::format("{}.", member.key);
      const std::string inner = field.starts_with(prefix) ? field.substr(prefix.size()) : field;
      if (member.value.is_object() && member.value.at_key(inner).error() == simdjson::SUCCESS)
        advice = fmt::format(
            "; '{0}' is an object that has it: jq -c '.{0}' takes that out of each line",
            member.key);
    }
    std::string meant = nearest(field, names);
    if (meant.empty()) meant = longest;
    if (advice.empty() && !meant.empty())
      advice = fmt::format("; did you mean text_field={}?", meant);
    return fmt::format("no field '{}'; the line has {}{}", field,
                       names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")), advice);
  }

  simdjson::dom::parser parser_;
};

}  // namespace

void skip_or_fail(CorruptRecords corrupt_records, const std::string& fault,
                  CorruptRecordCount* count) {
  if (corrupt_records == CorruptRecords::kFail)
    fail("{} (broken=skip skips and counts corrupt records)", fault);
  count->add({1, fault});
}

std::string document_place(const std::string& shard, DocumentFormat format,
                           const ReadOptions& options, int64_t number) {
  if (format == DocumentFormat::kAuto) format = document_format(shard);
  if (format == DocumentFormat::kJsonLines) return fmt::format("{}:{}", shard, number + 1);
  if (options.separator.empty()) return shard;
  return fmt::format("{}: document {}", shard, number + 1);
}

DocumentFormat document_format(const std::filesystem::path& path) {
  const std::string outer = lower_extension(path);
  const std::string extension =
      outer == ".gz" || outer == ".zst" ? lower_extension(path.stem()) : outer;
  const bool is_json = extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
  return is_json ? DocumentFormat::kJsonLines : DocumentFormat::kText;
}

std::unique_ptr<DocumentReader> read_documents(std::unique_ptr<ByteSource> source,
                                               const std::filesystem::path& path,
                                               const ReadOptions& options, DocumentFormat format) {
  source = decompress_by_name(std::move(source), path);
  if (const ForeignFormat* foreign = foreign_format(head_of(*source)))
    fail("{}: {}", path.string(), describe(*foreign, path));
  if (format == DocumentFormat::kAuto) format = document_format(path);
  if (format == DocumentFormat::kJsonLines)
    return std::make_unique<JsonLineDocuments>(std::move(source), options);
  return std::make_unique<TextDocuments>(std::move(source), options);
}

std::unique_ptr<DocumentReader> open_documents(const std::filesystem::path& path,
                                               const ReadOptions& options, DocumentFormat format) {
  return read_documents(open_file(path), path, options, format);
}

}  // namespace tessera
