// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/sentence_piece_check.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/base/error.h"
#include "inputs/tokenizers/protobuf.h"
#include "inputs/tokenizers/sentence_piece_fields.h"
#include "inputs/tokenizers/utf8.h"

namespace tessera {

using namespace sentence_piece_fields;

namespace {

constexpr size_t kMostPieces = 1 << 22;
constexpr size_t kLongestPiece = 1 << 16;

// A trie as a double array (Darts-clone) and the texts that its values point at, each ended by a
// zero. A lookup follows offsets without looking at the size: every one must lie within.
class NormalizationTable {
 public:
  NormalizationTable(std::string_view table, const std::string& where) : where_(where) {
    uint32_t size = 0;
    if (table.size() <= sizeof(size)) refuse();
    std::memcpy(&size, table.data(), sizeof(size));
    table.remove_prefix(sizeof(size));
    if (size >= table.size() || size % sizeof(uint32_t) != 0 || size == 0) refuse();
    trie_ = table.substr(0, size);
    texts_ = table.substr(size);
    count_ = size / sizeof(uint32_t);
  }

  void check() const {
    if (texts_.back() != '\0') refuse();
    for (uint64_t i = 0; i < count_; ++i) {
      const uint32_t unit = unit_at(i);
      if ((unit & kIsValue) != 0) continue;  // No label equals it, so it is never gone through.
      const uint64_t children = i ^ offset(unit);
      if ((children | 0xff) >= count_) refuse();
      const uint64_t text = unit_at(children) & ~kIsValue;
      if ((unit & kHasLeaf) != 0 && text >= texts_.size()) refuse();
    }
  }

 private:
  static constexpr uint32_t kIsValue = 1u << 31;
  static constexpr uint32_t kHasLeaf = 1u << 8;

  [[noreturn]] void refuse() const { fail("{}: its normalization table is damaged", where_); }
  static uint64_t offset(uint32_t unit) {
    return uint64_t{unit >> 10} << ((unit & (1u << 9)) >> 6);
  }
  uint32_t unit_at(uint64_t index) const {
    uint32_t unit = 0;
    std::memcpy(&unit, trie_.data() + index * sizeof(unit), sizeof(unit));
    return unit;
  }

  const std::string& where_;
  std::string_view trie_;
  std::string_view texts_;
  uint64_t count_ = 0;
};

void check_normalizer(std::string_view message, const std::string& where) {
  ProtobufReader reader(message, where);
  for (ProtobufField field; reader.next(&field);)
    if (field.number == kNormalizerTable && field.type == 2 && !field.bytes.empty())
      NormalizationTable(field.bytes, where).check();
}

void check_piece(std::string_view message, size_t index, const std::string& where) {
  ProtobufReader reader(message, where);
  bool has_text = false;
  for (ProtobufField field; reader.next(&field);) {
    if (field.number == kPieceText && field.type == 2) {
      has_text = !field.bytes.empty();
      if (field.bytes.size() > kLongestPiece || field.bytes.find('\0') != std::string_view::npos)
        fail("{}: piece {} is no text of at most {} bytes", where, index, kLongestPiece);
      for (size_t at = 0; at < field.bytes.size();) {
        const Character character = character_at(field.bytes, at);
        if (!character.is_valid) fail("{}: piece {} is not UTF-8", where, index);
        at += static_cast<size_t>(character.length);
      }
    }
    if (field.number == kPieceScore && field.type == 5) {
      const float score = field.as_float();
      if (!(std::abs(score) < 1e30f)) fail("{}: the score of piece {} is {}", where, index, score);
    }
  }
  if (!has_text) fail("{}: piece {} is empty", where, index);
}

}  // namespace

void check_sentence_piece_model(std::string_view model, const std::string& where) {
  ProtobufReader reader(model, where);
  size_t pieces = 0;
  for (ProtobufField field; reader.next(&field);) {
    if (field.type != 2) continue;
    if (field.number == kPieces) check_piece(field.bytes, pieces++, where);
    if (field.number == kNormalizer || field.number == kDenormalizer)
      check_normalizer(field.bytes, where);
    if (pieces > kMostPieces) fail("{}: it has more than {} pieces", where, kMostPieces);
  }
  if (pieces == 0) fail("{}: not a SentencePiece model: it has no pieces", where);
}

}  // namespace tessera
