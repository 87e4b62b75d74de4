// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/decode/prompt_text.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "inputs/checked_input.h"
#include "tasks/run/directory/run_config.h"

namespace tessera {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The parts between spaces and commas.
std::vector<std::string_view> words_of_ids(std::string_view text) {
  constexpr std::string_view kBetween = " ,\t\n";
  std::vector<std::string_view> words;
  for (size_t at = 0; (at = text.find_first_not_of(kBetween, at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

// nullopt if it is not a non-negative 32-bit number.
std::optional<int32_t> token_id(std::string_view number) {
  int32_t id = -1;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), id);
  if (error != std::errc() || stop != number.data() + number.size() || id < 0) return std::nullopt;
  return id;
}

bool begins_with_start_id(const ExperimentConfig& config) {
  const ErrorContext where("input");
  return make_input(config.input)->documents_begin_with_start_id();
}

}  // namespace

PromptText::PromptText(const Tokenizer* tokenizer, int64_t vocab_size, bool begins_with_start_id)
    : tokenizer_(tokenizer),
      vocab_size_(tokenizer != nullptr ? tokenizer->vocab_size() : vocab_size),
      begins_with_start_id_(begins_with_start_id) {}

int32_t PromptText::checked_id(std::string_view number) const {
  const std::optional<int32_t> id = token_id(number);
  if (!id)
    fail(
        "'{}' is not a token id: the data have no tokenizer, so a prompt is token ids separated by "
        "spaces",
        number);
  if (*id >= vocab_size_)
    fail("token id {} is beyond the vocabulary, whose ids are 0 to {}", number, vocab_size_ - 1);
  return *id;
}

std::vector<int32_t> PromptText::prompt_ids(std::string_view prompt) const {
  if (prompt.empty()) return beginning();
  std::vector<int32_t> ids;
  if (tokenizer_ != nullptr) {
    ids = tokenizer_->encode_with_special(prompt);
    for (const int32_t id : ids) CHECK(id >= 0 && id < vocab_size_, "id {}", id);
  } else {
    for (const std::string_view number : words_of_ids(prompt)) ids.push_back(checked_id(number));
  }
  if (ids.empty()) fail("the prompt is empty; expected at least one token to continue");
  if (begins_with_start_id_ && !gives_start_id(prompt, ids)) ids.insert(ids.begin(), start_id());
  return ids;
}

// A tokenizer without a start token of its own has start id 0, which may also be text ("!").
bool PromptText::gives_start_id(std::string_view prompt, const std::vector<int32_t>& ids) const {
  if (ids.front() != start_id()) return false;
  if (tokenizer_ == nullptr) return true;
  const std::vector<int32_t> plain = tokenizer_->encode(prompt);
  return plain.empty() || plain.front() != start_id();
}

std::vector<int32_t> parse_token_ids(std::string_view text) {
  std::vector<int32_t> ids;
  for (const std::string_view number : words_of_ids(text)) {
    const std::optional<int32_t> id = token_id(number);
    if (!id)
      fail(
          "'{}' is not a token id: expected non-negative integers separated by spaces or commas, "
          "such as '1 2 3'",
          number);
    ids.push_back(*id);
  }
  if (ids.empty()) fail("no token ids are given; expected at least one, such as '1 2 3'");
  return ids;
}

std::string token_ids_text(const std::vector<int32_t>& ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

std::vector<int32_t> PromptText::beginning() const {
  if (tokenizer_ == nullptr || begins_with_start_id_) return {start_id()};
  if (const auto end = tokenizer_->end_id()) return {*end};
  const std::vector<int32_t> newline = tokenizer_->encode("\n");
  return newline.empty() ? std::vector<int32_t>{start_id()} : newline;
}

std::string PromptText::text(const std::vector<int32_t>& ids) const {
  return tokenizer_ != nullptr ? tokenizer_->decode(ids) : token_ids_text(ids);
}

// A tokenizer may decode a token differently at the beginning of a text (SentencePiece drops the
// first space), and a character may begin in the prompt.
std::string PromptText::continuation(const std::vector<int32_t>& prompt,
                                     const std::vector<int32_t>& ids) const {
  if (tokenizer_ == nullptr) return text(ids);
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), ids.begin(), ids.end());
  const std::string before = text(prompt), whole = text(all);
  return whole.starts_with(before) ? whole.substr(before.size()) : text(ids);
}

int32_t PromptText::id_of(const std::string& token) const {
  if (is_number(token)) return checked_id(token);
  if (tokenizer_ == nullptr)
    fail("'{}' is not a token: the data have no tokenizer, so expected a token id", token);
  if (const auto id = tokenizer_->id_of(token)) return *id;
  const std::vector<int32_t> ids = tokenizer_->encode(token);
  if (ids.size() == 1) return ids.front();
  fail(
      "tokenizer '{}' has no token '{}'{}; expected a token, an id from 0 to {}, or for a text of "
      "several tokens a stop string (task.decode.stop_strings)",
      tokenizer_->name(), token, did_you_mean(token, tokenizer_->special_tokens()),
      vocab_size_ - 1);
}

std::optional<int32_t> PromptText::end_id() const {
  return tokenizer_ != nullptr ? tokenizer_->end_id() : std::nullopt;
}

DrawableIds PromptText::drawable_ids(int64_t model_vocab_size) const {
  if (vocab_size_ > model_vocab_size)
    fail(
        "{} has {} token ids, but the model's vocabulary has only {}; use the tokenizer that the "
        "model was trained with",
        tokenizer_ != nullptr ? fmt::format("the tokenizer '{}'", tokenizer_->name())
                              : std::string("the data"),
        vocab_size_, model_vocab_size);
  DrawableIds drawable(static_cast<size_t>(model_vocab_size), 0);
  for (int64_t id = 0; id < vocab_size_; ++id)
    drawable[static_cast<size_t>(id)] =
        tokenizer_ == nullptr || tokenizer_->may_be_drawn(static_cast<int32_t>(id)) ? 1 : 0;
  return drawable;
}

Infeed whole_input(const std::filesystem::path& directory) {
  return {.infeed_host_index = 0, .num_infeed_hosts = 1, .run_directory = directory};
}

RunText::RunText(const ExperimentConfig& config, const RunSetting& setting, Needs needs,
                 std::string_view advice)
    : kept_tokenizer_(read_run_tokenizer(setting.job_log_dir)) {
  if (!kept_tokenizer_) {
    try {
      const ErrorContext where("input");
      input_ = make_input(config.input);
      input_->attach(whole_input(setting.input_directory));
    } catch (const Error& error) {
      if (needs == Needs::kText)
        fail(
            "{} has no tokenizer, and its training data, whose tokenizer could be used, cannot be "
            "opened: {}. {}",
            setting.job_log_dir.string(), error.what(), advice);
      input_.reset();
    }
  }
  const Tokenizer* const tokenizer = kept_tokenizer_ ? kept_tokenizer_.get()
                                     : input_        ? input_->tokenizer()
                                                     : nullptr;
  text_.emplace(tokenizer, input_ ? input_->vocab_size() : 0, begins_with_start_id(config));
}

void RunText::set_vocab_size(int64_t vocab_size) {
  if (!kept_tokenizer_ && !input_) text_.emplace(nullptr, vocab_size);
}

}  // namespace tessera
