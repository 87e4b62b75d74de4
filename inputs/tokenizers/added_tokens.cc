// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/added_tokens.h"

#include <algorithm>

#include "core/base/error.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {
namespace {

// Bounds the search time: a match is tried at every byte.
constexpr size_t kLongestContent = 512;

bool is_word(int32_t code) { return (UnicodeClasses::get().of(code) & unicode_class::kWord) != 0; }

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const bool open_left =
      begin == 0 || !is_word(character_at(text, character_before(text, begin)).code);
  const bool open_right = end == text.size() || !is_word(character_at(text, end).code);
  return open_left && open_right;
}

size_t begin_of_space_before(std::string_view text, size_t at, size_t least) {
  while (at > least) {
    const size_t before = character_before(text, at);
    if (before < least || !is_white_space(character_at(text, before).code)) break;
    at = before;
  }
  return at;
}

size_t end_of_space_after(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Character character = character_at(text, at);
    if (!is_white_space(character.code)) break;
    at += static_cast<size_t>(character.length);
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& contents)
    : tokens_(std::move(tokens)) {
  CHECK(tokens_.size() == contents.size());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = contents[i];
    if (content.empty()) continue;
    if (content.size() > kLongestContent)
      fail("the added token '{}…' is {} bytes long; at most {} are supported",
           content.substr(0, 32), content.size(), kLongestContent);
    none_ = false;
    if (!tokens_[i].is_special) none_plain_ = false;
    begins_[static_cast<unsigned char>(content[0])] = true;
    int32_t node = 0;
    for (const char byte : content) {
      const int64_t key = int64_t{node} << 8 | static_cast<unsigned char>(byte);
      const auto [found, is_new] = children_.emplace(key, static_cast<int32_t>(token_at_.size()));
      if (is_new) token_at_.push_back(-1);
      node = found->second;
    }
    if (token_at_[static_cast<size_t>(node)] < 0)
      token_at_[static_cast<size_t>(node)] = static_cast<int32_t>(i);
  }
}

int32_t AddedTokens::child(int32_t node, char byte) const {
  const auto found = children_.find(int64_t{node} << 8 | static_cast<unsigned char>(byte));
  return found == children_.end() ? -1 : found->second;
}

std::optional<AddedTokens::Match> AddedTokens::next_match(std::string_view text,
                                                          size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Match> longest;
    int32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      node = child(node, text[at]);
      if (node < 0) break;
      const int32_t token = token_at_[static_cast<size_t>(node)];
      if (token >= 0) longest = Match{begin, at + 1, token};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

void AddedTokens::split(
    std::string_view text, bool with_special,
    const std::function<void(std::string_view, std::optional<int32_t>)>& take) const {
  size_t done = 0;
  if (!is_empty(with_special)) {
    size_t from = 0;
    while (const auto match = next_match(text, from)) {
      const AddedToken& token = tokens_[static_cast<size_t>(match->token)];
      from = match->end;
      // As in the reference, a skipped token still hides overlapping tokens.
      if (token.is_special && !with_special) continue;
      if (token.is_single_word && !stands_alone(text, match->begin, match->end)) continue;
      size_t begin = match->begin;
      size_t end = match->end;
      if (begin < done) continue;  // Inside white space taken by the previous token.
      if (token.takes_left_space) begin = begin_of_space_before(text, begin, done);
      if (token.takes_right_space) end = end_of_space_after(text, end);
      if (done < begin) take(text.substr(done, begin - done), std::nullopt);
      take(text.substr(begin, end - begin), token.id);
      done = end;
    }
  }
  if (done < text.size()) take(text.substr(done), std::nullopt);
}

}  // namespace tessera
