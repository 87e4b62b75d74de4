// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string_view>

#include "core/base/error.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {

// Direct-mapped cache from word to ids; a lookup takes about 1 % of the time of merging. Not
// thread-safe.
class WordCache {
 public:
  static constexpr size_t kLongestWord = 31;
  static constexpr size_t kMostIds = 7;

  // One cache line.
  struct alignas(64) Entry {
    std::array<uint64_t, 4>
        key{};  // The word's bytes, zero padding, and its length in the last byte.
    std::array<int32_t, kMostIds> ids{};
    int32_t count = 0;
  };

  WordCache() : entries_(size_t{1} << kBits) {}

  // The entry for a word of 1 to 31 bytes; *key is its key.
  Entry& place(std::string_view word, std::array<uint64_t, 4>* key) {
    *key = {};
    std::memcpy(key->data(), word.data(), word.size());
    (*key)[3] |= static_cast<uint64_t>(word.size()) << 56;
    uint64_t mixed = (*key)[0] * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 32) ^ (*key)[1]) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 29) ^ (*key)[2]) * 0x94d049bb133111ebu;
    mixed = (mixed ^ (mixed >> 31) ^ (*key)[3]) * 0x9e3779b97f4a7c15u;
    return entries_[mixed >> (64 - kBits)];
  }

 private:
  static constexpr int kBits = 15;
  std::vector<Entry> entries_;
};

struct BpeTokenizer::Workspace {
  WordCache cache;
  MergeScratch merge;
  std::string normalized;
};

struct BpeTokenizer::Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Workspace>> idle;
};

// Borrows a workspace for one call. The pool grows to the number of concurrent calls.
class BpeTokenizer::Borrowed {
 public:
  explicit Borrowed(Pool& pool) : pool_(pool) {
    {
      const std::scoped_lock lock(pool_.mutex);
      if (!pool_.idle.empty()) {
        workspace_ = std::move(pool_.idle.back());
        pool_.idle.pop_back();
      }
    }
    if (workspace_ == nullptr) workspace_ = std::make_unique<Workspace>();
  }
  ~Borrowed() {
    const std::scoped_lock lock(pool_.mutex);
    pool_.idle.push_back(std::move(workspace_));
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  Workspace* get() const { return workspace_.get(); }

 private:
  Pool& pool_;
  std::unique_ptr<Workspace> workspace_;
};

namespace {

// Ids may have gaps, but not huge ones.
constexpr int64_t kMostGaps = 1 << 17;

// "normalized" matters only if there is a normalizer.
std::string description_of(const std::vector<AddedToken>& added, bool has_normalizer) {
  std::string text;
  for (const AddedToken& token : added)
    text += fmt::format("{} {}:{} {} {} {} {} {}\n", token.id, token.content.size(), token.content,
                        token.is_special, token.is_single_word, token.takes_left_space,
                        token.takes_right_space, token.is_normalized && has_normalizer);
  return text;
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeParts parts)
    : name_(std::move(parts.name)),
      definition_(std::move(parts.definition)),
      model_(parts.model, name_),
      normalizer_(std::move(parts.normalizer)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      scanner_(pre_tokenizer_->only_scanner()),
      added_(std::move(parts.added)),
      decoder_(std::move(parts.decoder)),
      end_id_(parts.end_id),
      pool_(std::make_unique<Pool>()) {
  std::stable_sort(added_.begin(), added_.end(),
                   [](const auto& one, const auto& other) { return one.id < other.id; });
  add_texts(parts);
  start_id_ = parts.start_id.value_or(0);
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (const AddedToken& token : added_)
    (token.is_normalized && normalizer_ ? normalized : raw).push_back(token);
  std::vector<std::string> contents;
  for (const AddedToken& token : raw) contents.push_back(token.content);
  before_normalizing_ = std::make_unique<AddedTokens>(std::move(raw), contents);
  contents.clear();
  for (const AddedToken& token : normalized) {
    std::string storage;
    bool has_beginning = true;
    contents.emplace_back(normalizer_->apply(token.content, &storage, &has_beginning));
  }
  after_normalizing_ = std::make_unique<AddedTokens>(std::move(normalized), contents);
  fingerprint_ = fmt::format(
      "bpe-{}", content_hash(model_.description() + (normalizer_ ? normalizer_->description : "") +
                             "\n" + pre_tokenizer_->description() + "\n" +
                             description_of(added_, normalizer_.has_value())));
}

BpeTokenizer::~BpeTokenizer() = default;

void BpeTokenizer::add_texts(const BpeParts& parts) {
  int64_t count = 0;
  for (const auto& [token, id] : parts.model.vocabulary) count = std::max<int64_t>(count, id + 1);
  for (const AddedToken& token : added_) count = std::max<int64_t>(count, token.id + 1);
  const auto tokens = static_cast<int64_t>(parts.model.vocabulary.size() + added_.size());
  if (tokens == 0) fail("{}: the vocabulary is empty", name_);
  if (count > 2 * tokens + kMostGaps)
    fail("{}: id {} is far larger than the {} tokens of the vocabulary", name_, count - 1, tokens);
  texts_.resize(static_cast<size_t>(count));
  for (const auto& [token, id] : parts.model.vocabulary) {
    TokenText& text = texts_[static_cast<size_t>(id)];
    text.kind = TokenText::Kind::kText;
    if (parts.model.is_byte_level)
      text.bytes = byte_level_decode(token).value_or(token);
    else
      text.bytes = decoder_.bytes_of(token);
  }
  for (const AddedToken& token : added_) {
    TokenText& text = texts_[static_cast<size_t>(token.id)];
    const auto of_model = model_.id_of(token.content);
    if (text.kind != TokenText::Kind::kAbsent && of_model != token.id)
      fail("{}: added token '{}' has id {}, which is another token's", name_, token.content,
           token.id);
    if (of_model && *of_model != token.id)
      fail("{}: added token '{}' has id {} but is {} in the vocabulary", name_, token.content,
           token.id, *of_model);
    text.kind = token.is_special ? TokenText::Kind::kSpecial : TokenText::Kind::kText;
    if (token.is_special) text.bytes.clear();
    if (!token.is_special && !of_model) text.bytes = token.content;
  }
}

void BpeTokenizer::encode(std::string_view text, std::vector<int32_t>* ids) const {
  encode_text(text, false, ids);
}

std::vector<int32_t> BpeTokenizer::encode_with_special(std::string_view text) const {
  std::vector<int32_t> ids;
  encode_text(text, true, &ids);
  return ids;
}

void BpeTokenizer::encode_text(std::string_view whole, bool with_special,
                               std::vector<int32_t>* ids) const {
  const Borrowed workspace(*pool_);
  const auto encode_normalized = [&](std::string_view text, bool is_beginning) {
    size_t at = 0;
    after_normalizing_->split(
        text, with_special, [&](std::string_view part, std::optional<int32_t> token) {
          if (token)
            ids->push_back(*token);
          else
            encode_piece({part, is_beginning && at == 0}, workspace.get(), ids);
          at += part.size();
        });
  };
  before_normalizing_->split(
      whole, with_special, [&](std::string_view part, std::optional<int32_t> token) {
        if (token) return ids->push_back(*token);
        bool is_beginning = part.data() == whole.data();
        if (!normalizer_) return encode_piece({part, is_beginning}, workspace.get(), ids);
        std::string* storage = &workspace.get()->normalized;
        const std::string_view text = normalizer_->apply(part, storage, &is_beginning);
        encode_normalized(text, is_beginning);
      });
}

void BpeTokenizer::encode_piece(const TextPiece& piece, Workspace* workspace,
                                std::vector<int32_t>* ids) const {
  const auto take = [&](std::string_view word) { encode_word(word, workspace, ids); };
  if (scanner_ != nullptr)
    scanner_->for_each_word(piece.text, take);
  else
    pre_tokenizer_->for_each_word(piece, take);
}

void BpeTokenizer::encode_word(std::string_view word, Workspace* workspace,
                               std::vector<int32_t>* ids) const {
  if (word.size() > WordCache::kLongestWord)
    return model_.encode_word(word, &workspace->merge, ids);
  std::array<uint64_t, 4> key;
  WordCache::Entry& entry = workspace->cache.place(word, &key);
  if (entry.key == key) {
    ids->insert(ids->end(), entry.ids.begin(), entry.ids.begin() + entry.count);
    return;
  }
  const size_t before = ids->size();
  model_.encode_word(word, &workspace->merge, ids);
  const size_t count = ids->size() - before;
  if (count > WordCache::kMostIds) return;
  entry.key = key;
  entry.count = static_cast<int32_t>(count);
  std::copy(ids->begin() + static_cast<int64_t>(before), ids->end(), entry.ids.begin());
}

std::string BpeTokenizer::decode(const std::vector<int32_t>& ids) const {
  std::string text;
  for (const int32_t id : ids)
    if (has(id)) text += texts_[static_cast<size_t>(id)].bytes;
  return decoder_.stripped(std::move(text));
}

int32_t BpeTokenizer::byte_length(int32_t id) const {
  return has(id) ? static_cast<int32_t>(texts_[static_cast<size_t>(id)].bytes.size()) : 0;
}

bool BpeTokenizer::may_be_drawn(int32_t id) const {
  if (!has(id)) return false;
  return texts_[static_cast<size_t>(id)].kind == TokenText::Kind::kText || id == end_id_;
}

std::optional<int32_t> BpeTokenizer::id_of(std::string_view token) const {
  for (const AddedToken& added : added_)
    if (added.content == token) return added.id;
  return model_.id_of(token);
}

std::vector<std::string> BpeTokenizer::special_tokens() const {
  std::vector<std::string> names;
  for (const AddedToken& added : added_) names.push_back(added.content);
  return names;
}

namespace {

constexpr size_t kLongestText = 1 << 20;

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  while (true) {
    const size_t at = text.find(from);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += to;
    text.remove_prefix(at + from.size());
  }
}

// "<0x0A>" is byte 10; -1 for anything else.
int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int byte = -1;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 && byte >= 0 ? byte : -1;
}

class DecoderReader {
 public:
  TokenDecoder run(const Json& json) {
    add(json);
    return std::move(decoder_);
  }

 private:
  void add(const Json& json) {
    if (json.is_null()) return;
    const std::string& type = json.at("type").as_string();
    if (type == "Sequence") {
      for (const Json& each : json.at("decoders").as_array()) add(each);
    } else if (type == "ByteLevel" || type == "Fuse") {
      // Byte tokens are concatenated anyway.
    } else if (type == "ByteFallback") {
      decoder_.has_byte_tokens = true;
    } else if (type == "Replace") {
      const Json& from = json.at("pattern").at("String");
      if (from.as_string().empty()) fail("{} is empty", from.where());
      decoder_.replacements.emplace_back(from.as_string(), json.at("content").as_string());
    } else if (type == "Metaspace") {
      const Json& mark = json.at("replacement");
      if (mark.as_string().empty()) fail("{} is empty", mark.where());
      decoder_.replacements.emplace_back(mark.as_string(), " ");
      const Json* scheme = json.find("prepend_scheme");
      const bool prepends = scheme == nullptr ? flag_of(json, "add_prefix_space", true)
                                              : scheme->as_string() != "never";
      if (prepends) decoder_.strip_left = 1;
    } else if (type == "BPEDecoder") {
      decoder_.end_suffix = json.at("suffix").as_string();
      decoder_.strip_right = 1;
    } else if (type == "Strip") {
      add_strip(json);
    } else {
      fail(
          "{}: a decoder of type '{}' is not supported; supported are: ByteLevel, ByteFallback, "
          "Fuse, "
          "Metaspace, Replace, Strip, BPEDecoder, Sequence",
          json.where(), type);
    }
  }

  void add_strip(const Json& json) {
    const std::string& content = json.at("content").as_string();
    if (content.size() != 1)
      fail("{} is '{}', expected one ASCII character", json.at("content").where(), content);
    decoder_.strip = content[0];
    decoder_.strip_left = json.at("start").as_integer();
    decoder_.strip_right = json.at("stop").as_integer();
  }

  TokenDecoder decoder_;
};

}  // namespace

std::string TokenDecoder::bytes_of(std::string_view token) const {
  if (const int byte = byte_of_token(token); has_byte_tokens && byte >= 0)
    return std::string(1, static_cast<char>(byte));
  std::string text(token);
  for (const auto& [from, to] : replacements) {
    text = replaced(text, from, to);
    if (text.size() > kLongestText)
      fail("the decoder makes more than {} bytes of the token '{}'", kLongestText, token);
  }
  if (!end_suffix.empty() && text.ends_with(end_suffix))
    text.replace(text.size() - end_suffix.size(), end_suffix.size(), " ");
  return text;
}

std::string TokenDecoder::stripped(std::string text) const {
  size_t left = 0;
  while (static_cast<int64_t>(left) < strip_left && left < text.size() && text[left] == strip)
    ++left;
  text.erase(0, left);
  for (int64_t i = 0; i < strip_right && text.ends_with(strip); ++i) text.pop_back();
  return text;
}

TokenDecoder make_token_decoder(const Json& json) { return DecoderReader().run(json); }

}  // namespace tessera
