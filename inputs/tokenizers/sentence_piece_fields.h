// SPDX-License-Identifier: Apache-2.0
// The numbers of the fields of sentencepiece_model.proto that are read here.
#pragma once

#include <cstdint>

namespace tessera::sentence_piece_fields {

// Of the model.
inline constexpr uint64_t kPieces = 1;
inline constexpr uint64_t kTrainer = 2;
inline constexpr uint64_t kNormalizer = 3;
inline constexpr uint64_t kSelfTest = 4;
inline constexpr uint64_t kDenormalizer = 5;
// Of a piece.
inline constexpr uint64_t kPieceText = 1;
inline constexpr uint64_t kPieceScore = 2;
inline constexpr uint64_t kPieceType = 3;
// Of the trainer.
inline constexpr uint64_t kModelType = 3;
inline constexpr uint64_t kWhitespaceSuffix = 24;
inline constexpr uint64_t kByteFallback = 35;
inline constexpr uint64_t kUnknownText = 44;
// Of a normalizer.
inline constexpr uint64_t kNormalizerTable = 2;
inline constexpr uint64_t kDummyPrefix = 3;
inline constexpr uint64_t kRemoveSpaces = 4;
inline constexpr uint64_t kEscapeSpaces = 5;

}  // namespace tessera::sentence_piece_fields
