// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/sentence_piece_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/error.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {
namespace {

constexpr std::string_view kReplacementText = "\xef\xbf\xbd";
constexpr uint32_t kIsValue = 1u << 31;
constexpr uint32_t kHasLeaf = 1u << 8;
constexpr size_t kMostPieces = 1 << 22;
constexpr size_t kLongestPiece = 1 << 16;

// The protocol-buffer wire format, as far as sentencepiece_model.proto needs it.
struct ProtobufField {
  uint64_t number = 0;
  uint32_t type = 0;       // Wire type.
  std::string_view bytes;  // Wire type 2.
  uint64_t value = 0;      // Other wire types.
  std::string_view whole;  // The encoded field, including its tag.

  float as_float() const {
    const auto bits = static_cast<uint32_t>(value);
    float number_value = 0;
    std::memcpy(&number_value, &bits, sizeof(number_value));
    return number_value;
  }
};

// The fields of one message. Errors are prefixed with `where`.
class ProtobufReader {
 public:
  ProtobufReader(std::string_view message, const std::string& where)
      : rest_(message), where_(where) {}

  bool next(ProtobufField* field) {
    if (rest_.empty()) return false;
    const std::string_view before = rest_;
    const uint64_t tag = number();
    *field = {};
    field->number = tag >> 3;
    field->type = static_cast<uint32_t>(tag & 7);
    if (field->number == 0) refuse();
    switch (field->type) {
      case 0:
        field->value = number();
        break;
      case 1:
        field->value = fixed<uint64_t>();
        break;
      case 2: {
        const uint64_t size = number();
        if (size > rest_.size()) refuse();
        field->bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        break;
      }
      case 5:
        field->value = fixed<uint32_t>();
        break;
      default:
        refuse();
    }
    field->whole = before.substr(0, before.size() - rest_.size());
    return true;
  }

 private:
  [[noreturn]] void refuse() const {
    fail("{}: not a SentencePiece model, or a damaged one", where_);
  }

  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) refuse();
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    refuse();
  }
  template <typename T>
  T fixed() {
    if (rest_.size() < sizeof(T)) refuse();
    T value = 0;
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return value;
  }

  std::string_view rest_;
  const std::string& where_;
};

// Field numbers of sentencepiece_model.proto: the model,
constexpr uint64_t kPieces = 1;
constexpr uint64_t kTrainer = 2;
constexpr uint64_t kNormalizer = 3;
constexpr uint64_t kSelfTest = 4;
constexpr uint64_t kDenormalizer = 5;
// a piece,
constexpr uint64_t kPieceText = 1;
constexpr uint64_t kPieceScore = 2;
constexpr uint64_t kPieceType = 3;
// the trainer,
constexpr uint64_t kModelType = 3;
constexpr uint64_t kWhitespaceSuffix = 24;
constexpr uint64_t kByteFallback = 35;
constexpr uint64_t kUnknownText = 44;
// a normalizer.
constexpr uint64_t kNormalizerTable = 2;
constexpr uint64_t kDummyPrefix = 3;
constexpr uint64_t kRemoveSpaces = 4;
constexpr uint64_t kEscapeSpaces = 5;

void check_piece_text(std::string_view text, size_t index, const std::string& where) {
  if (text.size() > kLongestPiece || text.find('\0') != std::string_view::npos)
    fail("{}: piece {} is not a text of at most {} bytes", where, index, kLongestPiece);
  if (valid_prefix(text) < text.size()) fail("{}: piece {} is not UTF-8", where, index);
}

SentencePieceFile::Piece parse_piece(std::string_view message, size_t index,
                                     const std::string& where) {
  SentencePieceFile::Piece piece;
  ProtobufReader reader(message, where);
  for (ProtobufField field; reader.next(&field);) {
    if (field.number == kPieceText && field.type == 2) {
      check_piece_text(field.bytes, index, where);
      piece.text = field.bytes;
    }
    if (field.number == kPieceScore && field.type == 5) {
      piece.score = field.as_float();
      if (!(std::abs(piece.score) < 1e30f))
        fail("{}: the score of piece {} is {}", where, index, piece.score);
    }
    if (field.number == kPieceType && field.type == 0) {
      if (field.value < 1 || field.value > 6)
        fail("{}: piece {} has type {}, expected 1 to 6", where, index, field.value);
      piece.type = static_cast<SentencePieceFile::Type>(field.value);
    }
  }
  if (piece.text.empty()) fail("{}: piece {} is empty", where, index);
  return piece;
}

void parse_trainer(std::string_view message, const std::string& where, SentencePieceFile* file) {
  ProtobufReader reader(message, where);
  for (ProtobufField field; reader.next(&field);) {
    if (field.number == kUnknownText && field.type == 2) file->unknown_text = field.bytes;
    if (field.type != 0) continue;
    if (field.number == kModelType) {
      if (field.value < 1 || field.value > 4)
        fail("{}: model type {}, expected 1 to 4", where, field.value);
      file->kind = static_cast<SentencePieceFile::Kind>(field.value);
    }
    if (field.number == kByteFallback) file->has_byte_fallback = field.value != 0;
    if (field.number == kWhitespaceSuffix) file->has_space_behind = field.value != 0;
  }
}

void parse_normalizer(std::string_view message, const std::string& where, SentencePieceFile* file) {
  ProtobufReader reader(message, where);
  for (ProtobufField field; reader.next(&field);) {
    if (field.number == kNormalizerTable && field.type == 2) {
      if (!field.bytes.empty() && !SentencePieceTable::is_valid(field.bytes))
        fail("{}: its normalization table is damaged", where);
      file->normalization = field.bytes;
    }
    if (field.type != 0) continue;
    if (field.number == kDummyPrefix) file->adds_space = field.value != 0;
    if (field.number == kRemoveSpaces) file->removes_extra_spaces = field.value != 0;
    if (field.number == kEscapeSpaces) file->marks_spaces = field.value != 0;
  }
}

uint64_t offset_of(uint32_t unit) { return uint64_t{unit >> 10} << ((unit & (1u << 9)) >> 6); }

}  // namespace

SentencePieceFile parse_sentence_piece_model(std::string_view model, const std::string& where) {
  SentencePieceFile file;
  SentencePieceFile denormalizer;  // Not used, but the library does not check its table.
  ProtobufReader reader(model, where);
  for (ProtobufField field; reader.next(&field);) {
    if (field.type != 2) continue;
    if (field.number == kPieces)
      file.pieces.push_back(parse_piece(field.bytes, file.pieces.size(), where));
    if (file.pieces.size() > kMostPieces)
      fail("{}: it has more than {} pieces", where, kMostPieces);
    if (field.number == kTrainer) parse_trainer(field.bytes, where, &file);
    if (field.number == kNormalizer) parse_normalizer(field.bytes, where, &file);
    if (field.number == kDenormalizer) parse_normalizer(field.bytes, where, &denormalizer);
  }
  if (file.pieces.empty()) fail("{}: not a SentencePiece model: it has no pieces", where);
  return file;
}

// Drops the self-test too, whose samples are not normalized.
std::string without_normalizer(std::string_view model, const std::string& where) {
  std::string bare;
  bare.reserve(model.size());
  ProtobufReader reader(model, where);
  for (ProtobufField field; reader.next(&field);)
    if (field.number != kNormalizer && field.number != kSelfTest) bare += field.whole;
  std::string normalizer;
  for (const uint64_t flag : {kDummyPrefix, kRemoveSpaces, kEscapeSpaces}) {
    normalizer += static_cast<char>(flag << 3);
    normalizer += '\0';
  }
  bare += static_cast<char>(kNormalizer << 3 | 2);
  bare += static_cast<char>(normalizer.size());
  return bare + normalizer;
}

SentencePieceTable::SentencePieceTable(std::string_view table) {
  if (table.empty()) return;
  uint32_t size = 0;
  std::memcpy(&size, table.data(), sizeof(size));
  units_ = table.substr(sizeof(size), size);
  texts_ = table.substr(sizeof(size) + size);
}

uint32_t SentencePieceTable::unit(uint64_t index) const {
  uint32_t value = 0;
  std::memcpy(&value, units_.data() + index * sizeof(value), sizeof(value));
  return value;
}

std::pair<size_t, std::string_view> SentencePieceTable::longest(std::string_view text) const {
  std::pair<size_t, std::string_view> found{0, {}};
  if (units_.empty()) return found;
  uint64_t at = offset_of(unit(0));
  for (size_t i = 0; i < text.size(); ++i) {
    const auto label = static_cast<unsigned char>(text[i]);
    at ^= label;
    const uint32_t here = unit(at);
    if ((here & (kIsValue | 0xff)) != label) break;
    at ^= offset_of(here);
    if ((here & kHasLeaf) != 0) found = {i + 1, texts_.data() + (unit(at) & ~kIsValue)};
  }
  return found;
}

bool SentencePieceTable::is_valid(std::string_view table) {
  uint32_t size = 0;
  if (table.size() <= sizeof(size)) return false;
  std::memcpy(&size, table.data(), sizeof(size));
  if (size >= table.size() - sizeof(size) || size % sizeof(uint32_t) != 0 || size == 0)
    return false;
  const SentencePieceTable parsed(table);
  const uint64_t count = size / sizeof(uint32_t);
  if (parsed.texts_.back() != '\0') return false;
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t unit = parsed.unit(i);
    if ((unit & kIsValue) != 0) continue;  // Equal to no label, so never followed.
    const uint64_t children = i ^ offset_of(unit);
    if ((children | 0xff) >= count) return false;
    const uint64_t text = parsed.unit(children) & ~kIsValue;
    if ((unit & kHasLeaf) != 0 && text >= parsed.texts_.size()) return false;
  }
  return true;
}

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceFile& file)
    : table_(file.normalization),
      space_(file.marks_spaces ? kSpaceMark : " "),
      adds_space_(file.adds_space),
      has_space_behind_(file.has_space_behind),
      removes_extra_spaces_(file.removes_extra_spaces),
      marks_spaces_(file.marks_spaces) {
  for (const SentencePieceFile::Piece& piece : file.pieces)
    if (piece.type == SentencePieceFile::Type::kUserDefined)
      symbols_[static_cast<unsigned char>(piece.text[0])].push_back(piece.text);
  for (std::vector<std::string>& symbols : symbols_)
    std::sort(symbols.begin(), symbols.end(), [](const std::string& a, const std::string& b) {
      return a.size() != b.size() ? a.size() > b.size() : a < b;
    });
}

// Returns the normalized form of the first bytes, and how many bytes they are.
std::pair<std::string_view, size_t> SentencePieceNormalizer::prefix(std::string_view text) const {
  for (const std::string& symbol : symbols_[static_cast<unsigned char>(text[0])])
    if (text.starts_with(symbol)) return {text.substr(0, symbol.size()), symbol.size()};
  if (const auto [length, replacement] = table_.longest(text); length > 0)
    return {replacement, length};
  const Character character = character_at(text, 0);
  const auto length = static_cast<size_t>(character.length);
  if (!character.is_valid) return {kReplacementText, length};
  return {text.substr(0, length), length};
}

void SentencePieceNormalizer::begin(State* state, std::string* out) const {
  state->has_begun = true;
  while (removes_extra_spaces_ && !state->rest.empty()) {
    const auto [text, length] = prefix(state->rest);
    if (text != " ") break;
    state->rest.remove_prefix(length);
  }
  state->is_done = state->rest.empty();
  if (state->is_done) return;
  if (adds_space_ && !has_space_behind_) {
    if (removes_extra_spaces_)
      ++state->spaces;
    else
      *out += space_;
  }
  state->is_after_space = removes_extra_spaces_;
}

void SentencePieceNormalizer::write(std::string_view text, State* state, std::string* out) const {
  for (; state->spaces > 0; --state->spaces) *out += space_;
  if (!marks_spaces_) {
    *out += text;
  } else {
    for (const char& c : text) *out += c == ' ' ? kSpaceMark : std::string_view(&c, 1);
  }
  for (; removes_extra_spaces_ && out->ends_with(space_); ++state->spaces)
    out->resize(out->size() - space_.size());
}

void SentencePieceNormalizer::end(State* state, std::string* out) const {
  state->is_done = true;
  if (adds_space_ && has_space_behind_) *out += space_;
}

void SentencePieceNormalizer::advance(State* state, size_t size, std::string* out) const {
  if (!state->has_begun) begin(state, out);
  while (!state->is_done && out->size() < size) {
    if (state->rest.empty()) {
      end(state, out);
      break;
    }
    auto [text, length] = prefix(state->rest);
    while (state->is_after_space && text.starts_with(' ')) text.remove_prefix(1);
    if (!text.empty()) {
      state->is_after_space = removes_extra_spaces_ && text.ends_with(' ');
      write(text, state, out);
    }
    state->rest.remove_prefix(length);
  }
}

}  // namespace tessera
