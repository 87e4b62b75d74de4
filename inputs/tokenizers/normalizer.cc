// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/normalizer.h"

#include <utf8proc.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "inputs/tokenizers/json_flag.h"
#include "inputs/tokenizers/normal_form.h"
#include "inputs/tokenizers/pattern.h"
#include "inputs/tokenizers/unicode_classes.h"
#include "inputs/tokenizers/utf8.h"

namespace tessera {
namespace {

constexpr size_t kMostMade = 256 << 20;

// Replacements upon replacements can multiply a text beyond any memory.
void check_growth(size_t from, size_t to) {
  if (to > kMostMade && to > from)
    fail("a normalizer makes more than {} bytes of a text; part the document", kMostMade);
}

bool lies_in(std::string_view text, const std::string& buffer) {
  const std::less<const char*> before;
  return !before(text.data(), buffer.data()) &&
         !before(buffer.data() + buffer.size(), text.data() + text.size());
}

class FormNormalizer final : public Normalizer {
 public:
  FormNormalizer(NormalForm form, std::string name) : form_(form), name_(std::move(name)) {}
  std::string_view apply(std::string_view text, std::string* storage, bool*) const override {
    return to_normal_form(form_, text, storage);
  }
  std::string description() const override { return name_; }

 private:
  NormalForm form_;
  std::string name_;
};

class Lowercase final : public Normalizer {
 public:
  std::string_view apply(std::string_view text, std::string* storage, bool*) const override {
    storage->clear();
    for (size_t at = 0; at < text.size();) {
      const Character character = character_at(text, at);
      if (character.code == 0x130) {  // The one letter that becomes two: a dotted capital I.
        *storage += "i\xcc\x87";
      } else if (character.is_valid) {
        append_utf8(utf8proc_tolower(character.code), storage);
      } else {
        *storage += text[at];
      }
      at += static_cast<size_t>(character.length);
    }
    return *storage;
  }
  std::string description() const override { return "Lowercase"; }
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string_view apply(std::string_view text, std::string* storage, bool*) const override {
    if (text.empty()) return text;
    *storage = prefix_;
    *storage += text;
    check_growth(text.size(), storage->size());
    return *storage;
  }
  std::string description() const override { return fmt::format("Prepend {}", prefix_); }

 private:
  std::string prefix_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  std::string_view apply(std::string_view text, std::string*, bool* has_beginning) const override {
    while (left_ && !text.empty()) {
      const Character first = character_at(text, 0);
      if (!is_white_space(first.code)) break;
      text.remove_prefix(static_cast<size_t>(first.length));
      *has_beginning = false;
    }
    while (right_ && !text.empty()) {
      const size_t last = character_before(text, text.size());
      if (!is_white_space(character_at(text, last).code)) break;
      text = text.substr(0, last);
    }
    return text;
  }
  std::string description() const override { return fmt::format("Strip {} {}", left_, right_); }

 private:
  bool left_;
  bool right_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::string literal, std::optional<Pattern> pattern, std::string content)
      : literal_(std::move(literal)), pattern_(std::move(pattern)), content_(std::move(content)) {}

  std::string_view apply(std::string_view text, std::string* storage,
                         bool* has_beginning) const override {
    storage->clear();
    size_t copied = 0;
    const auto replace = [&](size_t begin, size_t end) {
      *storage += text.substr(copied, begin - copied);
      *storage += content_;
      if (begin == 0 && end > 0 && content_.empty()) *has_beginning = false;
      check_growth(text.size(), storage->size());
      copied = end;
    };
    if (pattern_) {
      pattern_->for_each_match(text, replace);
    } else {
      for (size_t at = text.find(literal_); at != std::string_view::npos;
           at = text.find(literal_, copied))
        replace(at, at + literal_.size());
    }
    if (copied == 0 && storage->empty()) return text;
    *storage += text.substr(copied);
    return *storage;
  }
  std::string description() const override {
    return fmt::format("Replace {} '{}' by '{}'", pattern_ ? "pattern" : "text", literal_,
                       content_);
  }

 private:
  std::string literal_;  // Or the pattern's text.
  std::optional<Pattern> pattern_;
  std::string content_;
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  std::string_view apply(std::string_view text, std::string* storage,
                         bool* has_beginning) const override {
    std::string made;
    for (const auto& step : steps_) {
      const std::string_view next = step->apply(text, &made, has_beginning);
      if (lies_in(next, made)) {
        const auto offset = static_cast<size_t>(next.data() - made.data());
        std::swap(*storage, made);
        text = std::string_view(*storage).substr(offset, next.size());
      } else {
        text = next;
      }
    }
    return text;
  }
  std::string description() const override {
    std::string text;
    for (const auto& step : steps_) text += step->description() + "; ";
    return text;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

std::unique_ptr<Normalizer> make_replace(const Json& json) {
  const std::string& content = json.at("content").as_string();
  const Json& pattern = json.at("pattern");
  if (const Json* expression = pattern.find("Regex"))
    return std::make_unique<Replace>(
        expression->as_string(), Pattern(expression->as_string(), expression->where()), content);
  const Json& literal = pattern.at("String");
  if (literal.as_string().empty()) fail("{} is empty", literal.where());
  return std::make_unique<Replace>(literal.as_string(), std::nullopt, content);
}

std::unique_ptr<Normalizer> make_sequence(const Json& json) {
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (const Json& each : json.at("normalizers").as_array())
    if (auto step = make_normalizer(each)) steps.push_back(std::move(step));
  return std::make_unique<Sequence>(std::move(steps));
}

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const Json& json) {
  if (json.is_null()) return nullptr;
  const std::string& type = json.at("type").as_string();
  if (type == "NFC") return std::make_unique<FormNormalizer>(NormalForm::kNfc, type);
  if (type == "NFD") return std::make_unique<FormNormalizer>(NormalForm::kNfd, type);
  if (type == "NFKC") return std::make_unique<FormNormalizer>(NormalForm::kNfkc, type);
  if (type == "NFKD") return std::make_unique<FormNormalizer>(NormalForm::kNfkd, type);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "Prepend") return std::make_unique<Prepend>(json.at("prepend").as_string());
  if (type == "Strip")
    return std::make_unique<Strip>(flag_of(json, "strip_left", true),
                                   flag_of(json, "strip_right", true));
  if (type == "Replace") return make_replace(json);
  if (type == "Sequence") return make_sequence(json);
  fail(
      "{}: a normalizer of type '{}' is not supported; there are: NFC, NFD, NFKC, NFKD, "
      "Lowercase, Prepend, Strip, Replace, Sequence",
      json.where(), type);
}

}  // namespace tessera
