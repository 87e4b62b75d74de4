// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/bpe_model.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "inputs/tokenizers/byte_alphabet.h"
#include "inputs/tokenizers/utf8.h"

namespace tessera {
namespace {

// Numbered symbols are 32 bits wide.
constexpr size_t kLongestWord = std::numeric_limits<int32_t>::max() / 4;

}  // namespace

BpeModel::BpeModel(const BpeDefinition& definition, const std::string& where)
    : where_(where),
      is_byte_level_(definition.is_byte_level),
      fuses_unknown_(definition.fuses_unknown),
      continuing_prefix_(definition.continuing_prefix),
      end_suffix_(definition.end_suffix),
      has_byte_fallback_(definition.has_byte_fallback) {
  std::unordered_map<int32_t, std::string_view> names;
  for (const auto& [token, id] : definition.vocabulary) {
    if (!ids_.emplace(token, id).second) fail("{}: the vocabulary has '{}' twice", where_, token);
    const auto [other, is_new] = names.emplace(id, token);
    if (!is_new)
      fail("{}: the vocabulary has id {} twice: '{}' and '{}'", where_, id, other->second, token);
  }
  if (definition.unknown_token) {
    unknown_ = id_of(*definition.unknown_token);
    if (!unknown_)
      fail("{}: unk_token '{}' is not in the vocabulary", where_, *definition.unknown_token);
  }
  symbols_are_bytes_ = is_byte_level_ && continuing_prefix_.empty() && end_suffix_.empty();
  add_byte_symbols();
  add_merges(definition);
  if (!definition.ignores_merges) return;
  for (const auto& [token, id] : definition.vocabulary) {
    const auto bytes = is_byte_level_ ? bytes_of_alphabet(token) : token;
    if (bytes) whole_words_.emplace(*bytes, id);
  }
}

void BpeModel::add_byte_symbols() {
  byte_ids_.fill(-1);
  fallback_ids_.fill(-1);
  for (int byte = 0; byte < 256; ++byte) {
    const std::string raw(1, static_cast<char>(byte));
    byte_ids_[static_cast<size_t>(byte)] = id_of(alphabet_of_bytes(raw)).value_or(-1);
    fallback_ids_[static_cast<size_t>(byte)] = id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
}

void BpeModel::add_merges(const BpeDefinition& definition) {
  merges_ = PairTable(definition.merges.size());
  int32_t rank = 0;
  for (const auto& [left, right] : definition.merges) {
    const auto require = [&](const std::string& token) {
      const auto id = id_of(token);
      if (!id)
        fail("{}: merge {} ('{}' with '{}') needs the token '{}', which is not in the vocabulary",
             where_, rank, left, right, token);
      return *id;
    };
    // A part that goes on with a word says so by its prefix, which the whole says once.
    const size_t prefix = std::min(continuing_prefix_.size(), right.size());
    const int32_t left_id = require(left);
    const int32_t right_id = require(right);
    merges_.put(left_id, right_id, {rank, require(left + right.substr(prefix))});
    ++rank;
  }
}

std::optional<int32_t> BpeModel::id_of(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

void BpeModel::fail_without_token(std::string_view symbol) const {
  fail("{}: the vocabulary has neither a token for '{}' nor an unk_token", where_, symbol);
}

void BpeModel::byte_symbols(std::string_view word, std::vector<int32_t>* symbols) const {
  symbols->resize(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(word[i])];
    if (id < 0) return character_symbols(word, symbols);
    (*symbols)[i] = id;
  }
}

void BpeModel::character_symbols(std::string_view raw, std::vector<int32_t>* symbols) const {
  const std::string written = is_byte_level_ ? alphabet_of_bytes(raw) : "";
  const std::string_view word = is_byte_level_ ? std::string_view(written) : raw;
  symbols->clear();
  bool owes_unknown = false;  // As the reference has it, one is written when the next symbol comes.
  std::string symbol;
  for (size_t at = 0; at < word.size();) {
    const auto length = static_cast<size_t>(character_at(word, at).length);
    const std::string_view character = word.substr(at, length);
    symbol = at == 0 ? "" : continuing_prefix_;
    symbol += character;
    at += length;
    if (at == word.size()) symbol += end_suffix_;
    if (const auto id = id_of(symbol)) {
      if (owes_unknown) symbols->push_back(*unknown_);
      owes_unknown = false;
      symbols->push_back(*id);
      continue;
    }
    const auto fallback = [&](char byte) {
      return fallback_ids_[static_cast<unsigned char>(byte)];
    };
    if (has_byte_fallback_ &&
        std::all_of(symbol.begin(), symbol.end(), [&](char byte) { return fallback(byte) >= 0; })) {
      for (const char byte : symbol) symbols->push_back(fallback(byte));
      continue;
    }
    if (!unknown_) fail_without_token(symbol);
    if (owes_unknown && !fuses_unknown_) symbols->push_back(*unknown_);
    owes_unknown = true;
  }
  if (owes_unknown) symbols->push_back(*unknown_);
}

void BpeModel::encode_word(std::string_view word, MergeScratch* scratch,
                           std::vector<int32_t>* ids) const {
  if (!whole_words_.empty()) {
    const auto found = whole_words_.find(std::string(word));
    if (found != whole_words_.end()) return ids->push_back(found->second);
  }
  if (word.size() > kLongestWord)
    fail("{}: a word of {} bytes is longer than the {} that are supported", where_, word.size(),
         kLongestWord);
  if (symbols_are_bytes_)
    byte_symbols(word, &scratch->symbols);
  else
    character_symbols(word, &scratch->symbols);
  merge_symbols(merges_, scratch);
  ids->insert(ids->end(), scratch->symbols.begin(), scratch->symbols.end());
}

std::string BpeModel::description() const {
  std::vector<std::pair<int32_t, std::string_view>> tokens;
  for (const auto& [token, id] : ids_) tokens.emplace_back(id, token);
  std::sort(tokens.begin(), tokens.end());
  std::vector<std::array<int32_t, 4>> merges;
  merges_.for_each([&](int32_t left, int32_t right, PairTable::Merge merge) {
    merges.push_back({merge.rank, left, right, merge.made});
  });
  std::sort(merges.begin(), merges.end());
  std::string text =
      fmt::format("bytes {} unknown {} fused {} fallback {} whole {} prefix '{}' suffix '{}'\n",
                  is_byte_level_, unknown_.value_or(-1), fuses_unknown_, has_byte_fallback_,
                  !whole_words_.empty(), continuing_prefix_, end_suffix_);
  for (const auto& [id, token] : tokens) text += fmt::format("{} {}:{}\n", id, token.size(), token);
  // The order of merges counts, not their numbers.
  for (const auto& merge : merges) text += fmt::format("{} {} {}\n", merge[1], merge[2], merge[3]);
  return text;
}

}  // namespace tessera
