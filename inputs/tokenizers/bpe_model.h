// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one word: its symbols, merged pair by pair in the order of the merges.
// Symbols are bytes (GPT-2's form) or characters. Exactly what Hugging Face's library gives, in
// O(n log n) for a word of any length.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "inputs/tokenizers/merge_symbols.h"
#include "inputs/tokenizers/pair_table.h"

namespace tessera {

// As the files have it: tokens in the file's own writing.
struct BpeDefinition {
  std::vector<std::pair<std::string, int32_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // First come, first merged.
  bool is_byte_level = false;                // Tokens are written in byte_alphabet.h.
  std::optional<std::string> unknown_token;  // For characters without a token.
  bool fuses_unknown = false;                // Several in a row are one.
  bool has_byte_fallback = false;            // They are written as bytes: <0x0A>.
  bool ignores_merges = false;               // A word that is a token is that token.
  std::string continuing_prefix;             // Of symbols that do not begin a word.
  std::string end_suffix;                    // Of those that end one.
};

class BpeModel {
 public:
  // Error, beginning with `where`, if the parts do not fit together.
  BpeModel(const BpeDefinition& definition, const std::string& where);

  // Appends the ids of a word, which is raw bytes also where tokens are written otherwise.
  void encode_word(std::string_view word, MergeScratch* scratch, std::vector<int32_t>* ids) const;

  std::optional<int32_t> id_of(std::string_view token) const;
  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  // Everything that ids follow from; for fingerprints.
  std::string description() const;

 private:
  void add_merges(const BpeDefinition& definition);
  void add_byte_symbols();
  [[noreturn]] void fail_without_token(std::string_view symbol) const;
  void byte_symbols(std::string_view word, std::vector<int32_t>* symbols) const;
  void character_symbols(std::string_view word, std::vector<int32_t>* symbols) const;

  std::string where_;
  // By the file's writing.
  std::unordered_map<std::string, int32_t> ids_;
  // By raw bytes, where a word that is a token is that token.
  std::unordered_map<std::string, int32_t> whole_words_;
  bool symbols_are_bytes_ = false;
  bool is_byte_level_ = false;
  bool fuses_unknown_ = false;
  std::optional<int32_t> unknown_;
  std::string continuing_prefix_;
  std::string end_suffix_;
  std::array<int32_t, 256> byte_ids_{};      // -1: none.
  std::array<int32_t, 256> fallback_ids_{};  // -1: none.
  bool has_byte_fallback_ = false;
  PairTable merges_;
};

}  // namespace tessera
