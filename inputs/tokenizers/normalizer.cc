// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "inputs/tokenizers/pattern.h"
#include "inputs/tokenizers/unicode.h"
#include "inputs/tokenizers/unicode_properties.h"

namespace tessera {

namespace {

// Options of utf8proc for the normal forms.
constexpr int kNfc = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
constexpr int kNfd = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;

// Lower code points are unaffected by the form.
constexpr int32_t first_affected(int form) { return form == kNfc ? 0x300 : 0x80; }

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

void append_normalized(int options, const std::vector<int32_t>& characters, std::string* out) {
  std::vector<int32_t> codes;
  for (const int32_t code : characters) append_decomposed(code, options, &codes);
  order_marks(&codes);
  auto count = static_cast<utf8proc_ssize_t>(codes.size());
  if ((options & UTF8PROC_COMPOSE) != 0)
    count = utf8proc_normalize_utf32(codes.data(), count, static_cast<utf8proc_option_t>(options));
  CHECK(count >= 0);
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(codes[static_cast<size_t>(i)], out);
}

// What a normal form does to a character.
enum class Effect : uint8_t {
  kNone,     // Stays as it is, whatever stands beside it.
  kSome,     // Changes, is reordered or combines with the character before.
  kUnknown,  // Not known to the library: stays, and ends what is normalized together.
};

std::vector<Effect> effects_of(int form) {
  std::vector<Effect> effects(0x110000, Effect::kNone);
  std::vector<int32_t> parts;
  for (int32_t code = first_affected(form); code < std::ssize(effects); ++code) {
    Effect& effect = effects[static_cast<size_t>(code)];
    if (!is_normalized_by_steps(code)) effect = Effect::kUnknown;
    const auto& property = *utf8proc_get_property(code);
    if (effect == Effect::kUnknown || property.category == UTF8PROC_CATEGORY_CO) continue;
    parts.clear();
    append_decomposed(code, form, &parts);
    // Also what is composed again, as its parts may combine with others.
    if (parts != std::vector{code} || property.combining_class != 0) effect = Effect::kSome;
    if ((form & UTF8PROC_COMPOSE) == 0) continue;
    parts.clear();
    append_decomposed(code, kNfd, &parts);
    for (size_t i = 1; i < parts.size(); ++i)
      if (Effect& second = effects[static_cast<size_t>(parts[i])]; second == Effect::kNone)
        second = Effect::kSome;
  }
  return effects;
}

// Converts to a Unicode normal form in O(n log n): utf8proc's reordering of combining marks is
// quadratic in the length of a run. Normalizes only stretches with affected characters. A stretch
// begins with the preceding character, which may combine with marks, and ends before an ASCII
// character, which does not combine.
template <int form>
std::string_view to_normal_form(std::string_view text, std::string* storage, bool*) {
  constexpr unsigned char kLeast = form == kNfc ? 0xcc : 0x80;  // The least byte of first_affected.
  unsigned char most = 0;
  for (const char byte : text) most = std::max(most, static_cast<unsigned char>(byte));
  if (most < kLeast) return text;
  static const std::vector<Effect> effects = effects_of(form);
  const auto effect_of = [](const Character& character) {
    return character.is_valid ? effects[static_cast<size_t>(character.code)] : Effect::kUnknown;
  };
  std::string out;
  std::vector<int32_t> stretch;
  size_t copied = 0;  // Prefix of the text copied to `out`.
  size_t previous = 0;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      previous = at++;
      continue;
    }
    const Character character = character_at(text, at);
    const Effect effect = effect_of(character);
    if (effect != Effect::kSome) {
      const size_t after = at + static_cast<size_t>(character.length);
      previous = effect == Effect::kNone ? at : after;
      at = after;
      continue;
    }
    previous = std::max(previous, copied);
    out += text.substr(copied, previous - copied);
    stretch.clear();
    size_t end = previous;
    while (end < text.size()) {
      const Character next = character_at(text, end);
      if ((next.code < 0x80 && end > at) || effect_of(next) == Effect::kUnknown) break;
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

// Limits growth: repeated replacements can grow a text exponentially.
void check_growth(size_t from, size_t to) {
  if (to > kMostMade && to > from)
    fail("the normalizer output of a text exceeds {} bytes; split the document", kMostMade);
}

bool lies_in(std::string_view text, const std::string& buffer) {
  const std::less<const char*> before;
  return !before(text.data(), buffer.data()) &&
         !before(buffer.data() + buffer.size(), text.data() + text.size());
}

std::string_view lower_case(std::string_view text, std::string* storage, bool*) {
  constexpr int32_t kDottedCapitalI = 0x130;  // Its lower case is two characters.
  storage->clear();
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    if (character.code == kDottedCapitalI) {
      *storage += "i\xcc\x87";
    } else if (character.is_valid) {
      append_utf8(lower_case_of(character.code), storage);
    } else {
      *storage += text[at];
    }
    at += static_cast<size_t>(character.length);
  }
  return *storage;
}

Normalizer make_prepend(const std::string& prefix) {
  return {fmt::format("Prepend {}", prefix),
          [prefix](std::string_view text, std::string* storage, bool*) -> std::string_view {
            if (text.empty()) return text;
            *storage = prefix;
            *storage += text;
            check_growth(text.size(), storage->size());
            return *storage;
          }};
}

Normalizer make_strip(bool left, bool right) {
  return {fmt::format("Strip {} {}", left, right),
          [left, right](std::string_view text, std::string*, bool* has_beginning) {
            while (left && !text.empty()) {
              const Character first = character_at(text, 0);
              if (!is_white_space(first.code)) break;
              text.remove_prefix(static_cast<size_t>(first.length));
              *has_beginning = false;
            }
            while (right && !text.empty()) {
              const size_t last = character_before(text, text.size());
              if (!is_white_space(character_at(text, last).code)) break;
              text = text.substr(0, last);
            }
            return text;
          }};
}

Normalizer make_replace(const Json& json) {
  const std::string& content = json.at("content").as_string();
  const Matcher matcher = make_matcher(json.at("pattern"));
  return {fmt::format("Replace {} by '{}'", matcher.description, content),
          [matcher, content](std::string_view text, std::string* storage, bool* has_beginning) {
            storage->clear();
            size_t copied = 0;
            matcher.find(text, [&](size_t begin, size_t end) {
              *storage += text.substr(copied, begin - copied);
              *storage += content;
              if (begin == 0 && end > 0 && content.empty()) *has_beginning = false;
              check_growth(text.size(), storage->size());
              copied = end;
            });
            if (copied == 0 && storage->empty()) return text;
            *storage += text.substr(copied);
            return std::string_view(*storage);
          }};
}

Normalizer make_sequence(const Json& json) {
  std::vector<Normalizer> steps;
  std::string description;
  for (const Json& each : json.at("normalizers").as_array()) {
    std::optional<Normalizer> step = make_normalizer(each);
    if (!step) continue;
    description += step->description + "; ";
    steps.push_back(*std::move(step));
  }
  return {description, [steps](std::string_view text, std::string* storage, bool* has_beginning) {
            std::string made;
            for (const Normalizer& step : steps) {
              const std::string_view next = step.apply(text, &made, has_beginning);
              if (lies_in(next, made)) {
                const auto offset = static_cast<size_t>(next.data() - made.data());
                std::swap(*storage, made);
                text = std::string_view(*storage).substr(offset, next.size());
              } else {
                text = next;
              }
            }
            return text;
          }};
}

}  // namespace

std::optional<Normalizer> make_normalizer(const Json& json) {
  if (json.is_null()) return std::nullopt;
  const std::string& type = json.at("type").as_string();
  if (type == "NFC") return Normalizer{type, to_normal_form<kNfc>};
  if (type == "NFD") return Normalizer{type, to_normal_form<kNfd>};
  if (type == "NFKC") return Normalizer{type, to_normal_form<kNfc | UTF8PROC_COMPAT>};
  if (type == "NFKD") return Normalizer{type, to_normal_form<kNfd | UTF8PROC_COMPAT>};
  if (type == "Lowercase") return Normalizer{type, lower_case};
  if (type == "Prepend") return make_prepend(json.at("prepend").as_string());
  if (type == "Strip")
    return make_strip(flag_of(json, "strip_left", true), flag_of(json, "strip_right", true));
  if (type == "Replace") return make_replace(json);
  if (type == "Sequence") return make_sequence(json);
  fail(
      "{}: a normalizer of type '{}' is not supported; supported are: NFC, NFD, NFKC, NFKD, "
      "Lowercase, Prepend, Strip, Replace, Sequence",
      json.where(), type);
}

}  // namespace tessera
