// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/bpe_tokenizer.h"

#include <algorithm>
#include <mutex>

#include "core/base/error.h"
#include "inputs/tokenizers/byte_alphabet.h"
#include "inputs/tokenizers/content_hash.h"
#include "inputs/tokenizers/word_cache.h"

namespace tessera {

struct BpeTokenizer::Workspace {
  WordCache cache;
  MergeScratch merge;
  std::string normalized;
};

struct BpeTokenizer::Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Workspace>> idle;
};

// A workspace for the length of a call. There are as many as calls ever ran at once.
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

// Ids may have gaps, but a file of a few tokens does not make tables of millions.
constexpr int64_t kMostGaps = 1 << 17;

// Only texts that are looked for matter, and "normalized" only where something normalizes.
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
  fingerprint_ =
      fmt::format("bpe-{}", content_hash(model_.description() +
                                         (normalizer_ ? normalizer_->description() : "") + "\n" +
                                         pre_tokenizer_->description() + "\n" +
                                         description_of(added_, normalizer_ != nullptr)));
}

BpeTokenizer::~BpeTokenizer() = default;

void BpeTokenizer::add_texts(const BpeParts& parts) {
  int64_t count = 0;
  for (const auto& [token, id] : parts.model.vocabulary) count = std::max<int64_t>(count, id + 1);
  for (const AddedToken& token : added_) count = std::max<int64_t>(count, token.id + 1);
  const auto tokens = static_cast<int64_t>(parts.model.vocabulary.size() + added_.size());
  if (tokens == 0) fail("{}: the vocabulary is empty", name_);
  if (count > 2 * tokens + kMostGaps)
    fail("{}: id {} lies far beyond the {} tokens of the vocabulary", name_, count - 1, tokens);
  texts_.resize(static_cast<size_t>(count));
  for (const auto& [token, id] : parts.model.vocabulary) {
    TokenText& text = texts_[static_cast<size_t>(id)];
    text.kind = TokenText::Kind::kText;
    if (parts.model.is_byte_level)
      text.bytes = bytes_of_alphabet(token).value_or(token);
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
        if (normalizer_ == nullptr) return encode_piece({part, is_beginning}, workspace.get(), ids);
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

}  // namespace tessera
