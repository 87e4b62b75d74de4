// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/long_sentence_piece.h"

#include <sentencepiece_processor.h>

#include <algorithm>

#include "core/base/error.h"
#include "inputs/tokenizers/utf8.h"

namespace tessera {
namespace {

uint64_t pair_key(int32_t first, int32_t second) {
  return uint64_t{static_cast<uint32_t>(first)} << 32 | static_cast<uint32_t>(second);
}

std::vector<uint64_t> neighbours_in(const std::vector<SentencePieceFile::Piece>& pieces) {
  std::vector<uint64_t> pairs;
  for (const SentencePieceFile::Piece& piece : pieces) {
    if (!piece.is_text()) continue;
    int32_t before = -1;
    for (size_t at = 0; at < piece.text.size();) {
      const Character character = character_at(piece.text, at);
      if (before >= 0) pairs.push_back(pair_key(before, character.code));
      before = character.code;
      at += static_cast<size_t>(character.length);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  pairs.shrink_to_fit();
  return pairs;
}

bool is_within_character(std::string_view text, size_t at) {
  return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
}

}  // namespace

LongSentencePiece::LongSentencePiece(std::string_view model, const std::string& where,
                                     const SentencePieceCut& cut)
    : LongSentencePiece(parse_sentence_piece_model(model, where), model, where, cut) {}

LongSentencePiece::LongSentencePiece(const SentencePieceFile& file, std::string_view model,
                                     const std::string& where, const SentencePieceCut& cut)
    : where_(where),
      cut_(cut),
      kind_(file.kind),
      has_byte_fallback_(file.has_byte_fallback),
      normalizer_(file),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()),
      neighbours_(neighbours_in(file.pieces)) {
  const auto status = processor_->LoadFromSerializedProto(without_normalizer(model, where));
  if (!status.ok()) fail("{}: SentencePiece refuses the model: {}", where_, status.ToString());
}

LongSentencePiece::~LongSentencePiece() = default;

// Whether a token may lie across the beginning of the character at `at`, which is not the first. A
// unigram model's tokens are its pieces, and so are those of BPE and all that it merges on the way;
// so none does if these two characters are side by side in no piece. A model of words has a token
// from each space mark to the next.
bool LongSentencePiece::may_cross(std::string_view text, size_t at) const {
  if (kind_ == SentencePieceFile::Kind::kWord) return !text.substr(at).starts_with(kSpaceMark);
  const int32_t before = character_at(text, character_before(text, at)).code;
  const uint64_t pair = pair_key(before, character_at(text, at).code);
  return std::binary_search(neighbours_.begin(), neighbours_.end(), pair);
}

// Where the first piece of so much text ends.
size_t LongSentencePiece::cut_of(std::string_view text) const {
  const auto is_good = [&](size_t at) {
    return !is_within_character(text, at) && !may_cross(text, at);
  };
  const size_t most = std::min(cut_.most, text.size() - 1);
  for (size_t at = std::min(cut_.usual, most); at > 0; --at)
    if (is_good(at)) return at;
  for (size_t at = cut_.usual + 1; at <= most; ++at)
    if (is_good(at)) return at;
  size_t at = most;
  while (at > 1 && is_within_character(text, at)) --at;
  return at;
}

// The library writes one unknown token for a run of unknown characters, be it cut or not.
void LongSentencePiece::encode_piece(std::string_view normalized, bool is_first,
                                     std::vector<int32_t>* ids) const {
  std::vector<int> found;
  const auto status = processor_->Encode(normalized, &found);
  if (!status.ok()) fail("{}: SentencePiece fails: {}", where_, status.ToString());
  const bool goes_on = !is_first && !has_byte_fallback_ && !ids->empty() && !found.empty() &&
                       ids->back() == found.front() && processor_->IsUnknown(found.front());
  ids->insert(ids->end(), found.begin() + (goes_on ? 1 : 0), found.end());
}

void LongSentencePiece::encode(std::string_view text, std::vector<int32_t>* ids) const {
  SentencePieceNormalizer::State state = SentencePieceNormalizer::start(text);
  std::string waiting;  // Normalized, from `begin` on not yet encoded.
  size_t begin = 0;
  bool is_first = true;
  while (!state.is_done) {
    waiting.erase(0, begin);
    begin = 0;
    normalizer_.advance(&state, 4 * cut_.most, &waiting);
    while (waiting.size() - begin > cut_.most) {
      const std::string_view rest = std::string_view(waiting).substr(begin);
      const size_t cut = cut_of(rest);
      encode_piece(rest.substr(0, cut), is_first, ids);
      is_first = false;
      begin += cut;
    }
  }
  encode_piece(std::string_view(waiting).substr(begin), is_first, ids);
}

}  // namespace tessera
