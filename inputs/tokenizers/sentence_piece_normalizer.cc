// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/sentence_piece_normalizer.h"

#include <algorithm>
#include <cstring>

#include "inputs/tokenizers/unicode.h"

namespace tessera {
namespace {

constexpr std::string_view kReplacementText = "\xef\xbf\xbd";

}  // namespace

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

// The normalized form of the first bytes, and how many bytes they are.
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
    if (removes_extra_spaces_) {
      ++state->spaces;
    } else {
      *out += space_;
    }
  }
  state->is_after_space = removes_extra_spaces_;
}

void SentencePieceNormalizer::write(std::string_view text, State* state, std::string* out) const {
  for (; state->spaces > 0; --state->spaces) *out += space_;
  if (!marks_spaces_) {
    *out += text;
  } else {
    for (const char c : text) {
      if (c == ' ') {
        *out += kSpaceMark;
      } else {
        *out += c;
      }
    }
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
