// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/sentence_piece_model.h"

#include "core/base/error.h"
#include "inputs/tokenizers/protobuf.h"
#include "inputs/tokenizers/sentence_piece_fields.h"

namespace tessera {

using namespace sentence_piece_fields;

namespace {

SentencePieceFile::Piece parse_piece(std::string_view message, const std::string& where) {
  SentencePieceFile::Piece piece;
  ProtobufReader reader(message, where);
  for (ProtobufField field; reader.next(&field);) {
    if (field.number == kPieceText && field.type == 2) piece.text = field.bytes;
    if (field.number == kPieceScore && field.type == 5) piece.score = field.as_float();
    if (field.number == kPieceType && field.type == 0) {
      if (field.value < 1 || field.value > 6)
        fail("{}: a piece of type {}; there are 1 to 6", where, field.value);
      piece.type = static_cast<SentencePieceFile::Type>(field.value);
    }
  }
  return piece;
}

void parse_trainer(std::string_view message, const std::string& where, SentencePieceFile* file) {
  ProtobufReader reader(message, where);
  for (ProtobufField field; reader.next(&field);) {
    if (field.number == kUnknownText && field.type == 2) file->unknown_text = field.bytes;
    if (field.type != 0) continue;
    if (field.number == kModelType) {
      if (field.value < 1 || field.value > 4)
        fail("{}: a model of type {}; there are 1 to 4", where, field.value);
      file->kind = static_cast<SentencePieceFile::Kind>(field.value);
    }
    if (field.number == kByteFallback) file->has_byte_fallback = field.value != 0;
    if (field.number == kWhitespaceSuffix) file->has_space_behind = field.value != 0;
  }
}

void parse_normalizer(std::string_view message, const std::string& where, SentencePieceFile* file) {
  ProtobufReader reader(message, where);
  for (ProtobufField field; reader.next(&field);) {
    if (field.number == kNormalizerTable && field.type == 2) file->normalization = field.bytes;
    if (field.type != 0) continue;
    if (field.number == kDummyPrefix) file->adds_space = field.value != 0;
    if (field.number == kRemoveSpaces) file->removes_extra_spaces = field.value != 0;
    if (field.number == kEscapeSpaces) file->marks_spaces = field.value != 0;
  }
}

}  // namespace

SentencePieceFile parse_sentence_piece_model(std::string_view model, const std::string& where) {
  SentencePieceFile file;
  ProtobufReader reader(model, where);
  for (ProtobufField field; reader.next(&field);) {
    if (field.type != 2) continue;
    if (field.number == kPieces) file.pieces.push_back(parse_piece(field.bytes, where));
    if (field.number == kTrainer) parse_trainer(field.bytes, where, &file);
    if (field.number == kNormalizer) parse_normalizer(field.bytes, where, &file);
  }
  return file;
}

// The self-test goes too: its samples are of text that is not normalized.
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

}  // namespace tessera
