// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "inputs/tokenizers/pattern.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {

namespace {

// Unicode normal forms in O(n log n): utf8proc's reordering of combining marks is quadratic in the
// length of a run.
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

int options_of(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case NormalForm::kNfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case NormalForm::kNfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case NormalForm::kNfkd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
  }
  return 0;
}

// Lower code points are unaffected by the form.
constexpr int32_t first_affected(NormalForm form) {
  return form == NormalForm::kNfc ? 0x300 : 0x80;
}

void append_decomposed(int32_t code, int options, std::vector<int32_t>* codes) {
  std::array<int32_t, 32> parts;
  int boundary = 0;
  const auto count = utf8proc_decompose_char(code, parts.data(), parts.size(),
                                             static_cast<utf8proc_option_t>(options), &boundary);
  CHECK(count >= 0 && count <= static_cast<int64_t>(parts.size()));
  codes->insert(codes->end(), parts.begin(), parts.begin() + count);
}

// Sorts runs of combining marks by class (stable).
void order_marks(std::vector<int32_t>* codes) {
  const auto mark_class = [](int32_t code) { return utf8proc_get_property(code)->combining_class; };
  for (auto at = codes->begin(); at != codes->end();) {
    if (mark_class(*at) == 0) {
      ++at;
      continue;
    }
    auto end = at;
    while (end != codes->end() && mark_class(*end) != 0) ++end;
    std::stable_sort(
        at, end, [&](int32_t one, int32_t other) { return mark_class(one) < mark_class(other); });
    at = end;
  }
}

void append_normalized(NormalForm form, const std::vector<int32_t>& characters, std::string* out) {
  const int options = options_of(form);
  std::vector<int32_t> codes;
  for (const int32_t code : characters) append_decomposed(code, options, &codes);
  order_marks(&codes);
  auto count = static_cast<utf8proc_ssize_t>(codes.size());
  if ((options & UTF8PROC_COMPOSE) != 0)
    count = utf8proc_normalize_utf32(codes.data(), count, static_cast<utf8proc_option_t>(options));
  CHECK(count >= 0);
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(codes[static_cast<size_t>(i)], out);
}

// Normalizes only stretches with affected characters. A stretch begins with the preceding
// character, which may combine with marks, and ends before an ASCII character, which does not
// combine.
std::string_view to_normal_form(NormalForm form, std::string_view text, std::string* storage) {
  const int32_t first = first_affected(form);
  std::string out;
  std::vector<int32_t> stretch;
  size_t copied = 0;  // Prefix of the text copied to `out`.
  size_t previous = 0;
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    if (!character.is_valid || character.code < first) {
      previous = character.is_valid ? at : at + 1;
      at += static_cast<size_t>(character.length);
      continue;
    }
    previous = std::max(previous, copied);
    out += text.substr(copied, previous - copied);
    stretch.clear();
    size_t end = previous;
    while (end < text.size()) {
      const Character next = character_at(text, end);
      if (!next.is_valid || (next.code < 0x80 && end > at)) break;
      stretch.push_back(next.code);
      end += static_cast<size_t>(next.length);
    }
    append_normalized(form, stretch, &out);
    copied = at = previous = end;
  }
  if (copied == 0) return text;
  out += text.substr(copied);
  *storage = std::move(out);
  return *storage;
}

constexpr size_t kMostMade = 256 << 20;

// Repeated replacements can grow a text exponentially.
void check_growth(size_t from, size_t to) {
  if (to > kMostMade && to > from)
    fail("the normalizer output of a text exceeds {} bytes; split the document", kMostMade);
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
      if (character.code ==
          0x130) {  // Dotted capital I: the only letter whose lower case is two characters.
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
  std::string literal_;  // Or the pattern's source.
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
      "{}: a normalizer of type '{}' is not supported; supported are: NFC, NFD, NFKC, NFKD, "
      "Lowercase, Prepend, Strip, Replace, Sequence",
      json.where(), type);
}

}  // namespace tessera
