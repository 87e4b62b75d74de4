// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <mutex>
#include <span>
#include <unordered_map>

#include "core/base/error.h"
#include "inputs/tokenizers/unicode.h"
#include "inputs/tokenizers/word_cache.h"

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

// A set of texts to search for together.
class AddedTokens {
 public:
  // With a normalizer, searches for the normalized contents.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer)
      : tokens_(std::move(tokens)) {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      std::string storage;
      std::string_view content = tokens_[i].content;
      bool has_beginning = true;
      if (normalizer != nullptr) content = normalizer->apply(content, &storage, &has_beginning);
      if (content.empty()) continue;
      if (content.size() > kLongestContent)
        fail("the added token '{}…' is {} bytes long; at most {} are supported",
             content.substr(0, 32), content.size(), kLongestContent);
      none_ = false;
      if (!tokens_[i].is_special) none_plain_ = false;
      begins_[static_cast<unsigned char>(content[0])] = true;
      begin_ = content[0];
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

  // Calls `take` in order for tokens and for the text between them (id nullopt). The longest match
  // at a position is taken. Without `with_special`, special tokens are text.
  void split(std::string_view text, bool with_special,
             const std::function<void(std::string_view, std::optional<int32_t>)>& take) const {
    size_t done = 0;
    if (!(with_special ? none_ : none_plain_)) {
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

 private:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t token = 0;
  };

  std::optional<Match> next_match(std::string_view text, size_t from) const {
    const bool has_one_begin = std::ranges::count(begins_, true) == 1;  // Mostly '<'.
    for (size_t begin = from; begin < text.size(); ++begin) {
      if (has_one_begin) begin = std::min(text.find(begin_, begin), text.size() - 1);
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

  int32_t child(int32_t node, char byte) const {
    const auto found = children_.find(int64_t{node} << 8 | static_cast<unsigned char>(byte));
    return found == children_.end() ? -1 : found->second;
  }

  std::vector<AddedToken> tokens_;
  bool none_ = true;
  bool none_plain_ = true;
  // A trie: (node, byte) to node, and the token that ends at each node, or -1.
  std::unordered_map<int64_t, int32_t> children_;
  std::vector<int32_t> token_at_ = {-1};
  std::array<bool, 256> begins_{};
  char begin_ = 0;  // The last of them.
};

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

// Returns 10 for "<0x0A>"; -1 for anything else.
int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int byte = -1;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 && byte >= 0 ? byte : -1;
}

// Words whose entries in the cache are fetched before the first is read.
constexpr size_t kBatch = 320;

struct Workspace {
  WordCache cache;
  std::array<size_t, kBatch> ends;
  std::array<WordCache::Key, kBatch> keys;
  std::array<int32_t, kBatch*(WordCache::kMostIds + 1)> ids;
  MergeScratch merge;
  std::string normalized;
};

struct WorkspacePool {
  // Lends a workspace for one call. The pool grows to the number of concurrent calls.
  template <typename Call>
  void with_workspace(const Call& call) {
    std::unique_ptr<Workspace> workspace;
    {
      const std::scoped_lock lock(mutex);
      if (!idle.empty()) {
        workspace = std::move(idle.back());
        idle.pop_back();
      }
    }
    if (workspace == nullptr) workspace = std::make_unique<Workspace>();
    call(workspace.get());
    const std::scoped_lock lock(mutex);
    idle.push_back(std::move(workspace));
  }

  std::mutex mutex;
  std::vector<std::unique_ptr<Workspace>> idle;
};

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

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts)
      : model_(parts.model, parts.name),
        normalizer_(std::move(parts.normalizer)),
        pre_tokenizer_(std::move(parts.pre_tokenizer)),
        scanner_(pre_tokenizer_->only_scanner()),
        added_(std::move(parts.added)),
        decoder_(std::move(parts.decoder)) {
    name_ = std::move(parts.name);
    definition_ = std::move(parts.definition);
    start_id_ = parts.start_id.value_or(0);
    end_id_ = parts.end_id;
    std::stable_sort(added_.begin(), added_.end(),
                     [](const auto& one, const auto& other) { return one.id < other.id; });
    add_texts(parts);
    std::vector<AddedToken> raw;
    std::vector<AddedToken> normalized;
    for (const AddedToken& token : added_)
      (token.is_normalized && normalizer_ ? normalized : raw).push_back(token);
    before_normalizing_ = std::make_unique<AddedTokens>(std::move(raw), nullptr);
    after_normalizing_ =
        std::make_unique<AddedTokens>(std::move(normalized), normalizer_ ? &*normalizer_ : nullptr);
    fingerprint_ =
        fmt::format("bpe-{}", content_hash(model_.description() +
                                           (normalizer_ ? normalizer_->description : "") + "\n" +
                                           pre_tokenizer_->description() + "\n" +
                                           description_of(added_, normalizer_.has_value())));
  }

  using Tokenizer::encode;

  void encode(std::string_view text, std::vector<int32_t>* ids) const override {
    pool_->with_workspace([&](Workspace* workspace) { encode_text(text, false, workspace, ids); });
  }

  std::vector<int32_t> encode_with_special(std::string_view text) const override {
    std::vector<int32_t> ids;
    pool_->with_workspace([&](Workspace* workspace) { encode_text(text, true, workspace, &ids); });
    return ids;
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    return decoder_.stripped(Tokenizer::decode(ids));
  }

  std::optional<int32_t> id_of(std::string_view token) const override {
    for (const AddedToken& added : added_)
      if (added.content == token) return added.id;
    return model_.id_of(token);
  }

  std::vector<std::string> special_tokens() const override {
    std::vector<std::string> names;
    for (const AddedToken& added : added_) names.push_back(added.content);
    return names;
  }

 private:
  void add_texts(const BpeParts& parts) {
    int64_t count = 0;
    for (const auto& [token, id] : parts.model.vocabulary) count = std::max<int64_t>(count, id + 1);
    for (const AddedToken& token : added_) count = std::max<int64_t>(count, token.id + 1);
    const auto tokens = static_cast<int64_t>(parts.model.vocabulary.size() + added_.size());
    if (tokens == 0) fail("{}: the vocabulary is empty", name_);
    if (count > 2 * tokens + kMostGaps)
      fail("{}: id {} is far larger than the {} tokens of the vocabulary", name_, count - 1,
           tokens);
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

  void encode_text(std::string_view whole, bool with_special, Workspace* workspace,
                   std::vector<int32_t>* ids) const {
    const auto encode_normalized = [&](std::string_view text, bool is_beginning) {
      size_t at = 0;
      after_normalizing_->split(text, with_special,
                                [&](std::string_view part, std::optional<int32_t> token) {
                                  if (token)
                                    ids->push_back(*token);
                                  else
                                    encode_piece({part, is_beginning && at == 0}, workspace, ids);
                                  at += part.size();
                                });
    };
    before_normalizing_->split(
        whole, with_special, [&](std::string_view part, std::optional<int32_t> token) {
          if (token) return ids->push_back(*token);
          bool is_beginning = part.data() == whole.data();
          if (!normalizer_) return encode_piece({part, is_beginning}, workspace, ids);
          const std::string_view text =
              normalizer_->apply(part, &workspace->normalized, &is_beginning);
          encode_normalized(text, is_beginning);
        });
  }

  void encode_piece(const TextPiece& piece, Workspace* workspace, std::vector<int32_t>* ids) const {
    if (scanner_ != nullptr) return encode_scanned(piece.text, workspace, ids);
    pre_tokenizer_->for_each_word(piece, [&](std::string_view word) {
      const WordCache::Key key = WordCache::key_of(word, 0, word.size());
      std::array<int32_t, WordCache::kMostIds + 1> found;
      const size_t count = workspace->cache.find(key, found.data());
      if (count == 0) return encode_word(word, key, workspace, ids);
      ids->insert(ids->end(), found.begin(), found.begin() + static_cast<int64_t>(count));
    });
  }

  // Ids are collected in an array: appending each word's to a vector would take longer than finding
  // them.
  void encode_scanned(std::string_view text, Workspace* workspace,
                      std::vector<int32_t>* ids) const {
    int32_t* const first = workspace->ids.data();
    for (size_t at = 0; at < text.size();) {
      size_t words = 0;
      for (size_t from = at; words + kMostWordEnds <= kBatch && from < text.size();) {
        const std::span ends(workspace->ends.data() + words,
                             scanner_->next_words(text, from, workspace->ends.data() + words));
        workspace->cache.prepare(text, from, ends, workspace->keys.data() + words);
        words += ends.size();
        from = ends.back();
      }
      const std::span ends(workspace->ends.data(), words);
      int32_t* next = first;
      for (size_t i = 0; i < ends.size(); ++i) {
        const WordCache::Key& key = workspace->keys[i];
        const size_t count = workspace->cache.find(key, next);
        next += count;
        if (count == 0) {
          ids->insert(ids->end(), first, next);
          next = first;
          encode_word(text.substr(at, ends[i] - at), key, workspace, ids);
        }
        at = ends[i];
      }
      ids->insert(ids->end(), first, next);
    }
  }

  void encode_word(std::string_view word, const WordCache::Key& key, Workspace* workspace,
                   std::vector<int32_t>* ids) const {
    const std::span<const int32_t> found = workspace->cache.find_rare(word, key);
    if (!found.empty()) return void(ids->insert(ids->end(), found.begin(), found.end()));
    const size_t before = ids->size();
    model_.encode_word(word, &workspace->merge, ids);
    workspace->cache.insert(word, key, std::span(*ids).subspan(before));
  }

  BpeModel model_;
  std::optional<Normalizer> normalizer_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  const WordScanner* scanner_;  // Set if it is the only step of pre_tokenizer_.
  std::unique_ptr<AddedTokens> before_normalizing_;
  std::unique_ptr<AddedTokens> after_normalizing_;
  std::vector<AddedToken> added_;
  TokenDecoder decoder_;
  std::unique_ptr<WorkspacePool> pool_ = std::make_unique<WorkspacePool>();
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

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeParts parts) {
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace tessera
