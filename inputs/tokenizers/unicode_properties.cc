// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/unicode_properties.h"

#include <oniguruma.h>
#include <utf8proc.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "inputs/tokenizers/unicode_table.h"

namespace tessera {
namespace {

constexpr OnigCtype kUnknown = 4095;
constexpr OnigCtype kFirstOwn = 4096;         // Numbers of properties that Oniguruma does not know.
constexpr OnigCodePoint kFirstRange = 0x80;   // Sets have bits for the characters before.
constexpr OnigCodePoint kFirstOther = 0x100;  // Below, all versions are equal. \w has a table.
constexpr std::string_view kLatin1Numbers = "B2-B3 B9 BC-BE";  // \p{Word}, not [[:word:]].

struct Range {
  OnigCodePoint first = 0;
  OnigCodePoint last = 0;
};
using Ranges = std::vector<Range>;  // Sorted.

// Takes the words of a text one by one; "" at its end.
std::string_view take_word(std::string_view* text, char separator = ' ') {
  const size_t end = std::min(text->find(separator), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

OnigCodePoint code_of(std::string_view hexadecimal) {
  OnigCodePoint code = 0;
  const auto [end, error] =
      std::from_chars(hexadecimal.data(), hexadecimal.data() + hexadecimal.size(), code, 16);
  CHECK(error == std::errc() && end == hexadecimal.data() + hexadecimal.size(), "{}", hexadecimal);
  return code;
}

// Parses "41-5A AA" as two ranges.
Ranges parsed_ranges(std::string_view text) {
  Ranges ranges;
  while (!text.empty()) {
    std::string_view word = take_word(&text);
    const OnigCodePoint first = code_of(take_word(&word, '-'));
    ranges.push_back({first, word.empty() ? first : code_of(word)});
  }
  return ranges;
}

bool contains(const Ranges& ranges, OnigCodePoint code) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code,
                                      [](OnigCodePoint c, Range range) { return c < range.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

Ranges joined(Ranges ranges, const Ranges& others) {
  ranges.insert(ranges.end(), others.begin(), others.end());
  std::sort(ranges.begin(), ranges.end(), [](Range a, Range b) { return a.first < b.first; });
  Ranges out;
  for (const Range range : ranges) {
    if (!out.empty() && range.first <= out.back().last + 1)
      out.back().last = std::max(out.back().last, range.last);
    else
      out.push_back(range);
  }
  return out;
}

Ranges without(const Ranges& from, const Ranges& removed) {
  Ranges out;
  auto next = removed.begin();
  for (Range range : from) {
    while (next != removed.end() && next->last < range.first) ++next;
    for (auto at = next; at != removed.end() && at->first <= range.last; ++at) {
      if (range.first < at->first) out.push_back({range.first, at->first - 1});
      range.first = at->last + 1;
    }
    if (range.first <= range.last) out.push_back(range);
  }
  return out;
}

// Normalizes property names, which are compared without case, spaces, '-' and '_'.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (c != ' ' && c != '-' && c != '_')
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return plain;
}

// Returns Oniguruma's ranges of a property; empty if it does not know it.
Ranges ranges_of_library(OnigCtype type) {
  OnigCodePoint first = 0;
  const OnigCodePoint* numbers = nullptr;
  Ranges ranges;
  if (OnigEncodingUTF8.get_ctype_code_range(type, &first, &numbers) != 0) return ranges;
  for (OnigCodePoint i = 0; i < numbers[0]; ++i)
    ranges.push_back({numbers[1 + 2 * i], numbers[2 + 2 * i]});
  return ranges;
}

OnigCtype library_type(std::string_view name) {
  std::string plain = plain_name(name);
  auto* const begin = reinterpret_cast<OnigUChar*>(plain.data());
  const int type =
      OnigEncodingUTF8.property_name_to_ctype(&OnigEncodingUTF8, begin, begin + plain.size());
  return type < 0 ? kUnknown : static_cast<OnigCtype>(type);
}

// All properties, with the ranges of those that differ from the installed Oniguruma's.
class Properties {
 public:
  Properties() {
    OnigEncodingType* encodings[] = {&OnigEncodingUTF8};
    CHECK(onig_initialize(encodings, 1) == ONIG_NORMAL);
    std::vector<Ranges> groups;
    Ranges changed;
    for (std::string_view lines = kChangedCharacters; !lines.empty();) {
      groups.push_back(parsed_ranges(take_word(&lines, '\n')));
      changed = joined(std::move(changed), groups.back());
    }
    for (std::string_view lines = kChangedClasses; !lines.empty();) {
      std::string_view words = take_word(&lines, '\n');
      const OnigCtype type = library_type(take_word(&words));
      Ranges ranges = without(ranges_of(type), changed);
      while (!words.empty())
        ranges = joined(std::move(ranges), groups.at(code_of(take_word(&words))));
      set(type, ranges);
    }
    set_scripts();
    // The name and the class in brackets, [[:punct:]], differ.
    set(ONIGENC_CTYPE_PUNCT, joined(ranges_of(type_of("P")), ranges_of(type_of("S"))));
    names_["punct"] = type_of("P");
    const Ranges word = joined(ranges_of(ONIGENC_CTYPE_WORD), parsed_ranges(kLatin1Numbers));
    set(names_["word"] = next_own_++, word);
  }

  OnigCtype type_of(std::string_view name) const {
    const auto own = names_.find(plain_name(name));
    return own == names_.end() ? library_type(name) : own->second;
  }
  Ranges ranges_of(OnigCtype type) const {
    return is_changed(type) ? ranges_[type] : ranges_of_library(type);
  }
  bool is_changed(OnigCtype type) const { return type < ranges_.size() && !ranges_[type].empty(); }
  bool has(OnigCtype type, OnigCodePoint code) const { return contains(ranges_[type], code); }
  // In Oniguruma's form: the count, then each first and last.
  const OnigCodePoint* numbers_of(OnigCtype type) const { return numbers_[type].data(); }

 private:
  void set_scripts() {
    std::vector<std::pair<OnigCtype, Ranges>> scripts;
    Ranges changed;
    for (std::string_view lines = kChangedScripts; !lines.empty();) {
      std::string_view words = take_word(&lines, '\n');
      const OnigCtype type = type_or_new(take_word(&words));
      scripts.emplace_back(type, parsed_ranges(words));
      changed = joined(std::move(changed), scripts.back().second);
    }
    for (const auto& [type, ranges] : scripts)
      set(type, joined(without(ranges_of(type), changed), ranges));
  }
  OnigCtype type_or_new(std::string_view names) {
    const OnigCtype type = library_type(names.substr(0, names.find('|')));
    if (type != kUnknown) return type;
    const OnigCtype own = next_own_++;
    while (!names.empty()) names_[plain_name(take_word(&names, '|'))] = own;
    return own;
  }
  void set(OnigCtype type, const Ranges& ranges) {
    if (ranges_.size() <= type) ranges_.resize(type + 1), numbers_.resize(type + 1);
    ranges_[type] = ranges;
    numbers_[type] = {static_cast<OnigCodePoint>(ranges.size())};
    for (const Range range : ranges)
      numbers_[type].insert(numbers_[type].end(), {range.first, range.last});
  }

  OnigCtype next_own_ = kFirstOwn;
  std::map<std::string, OnigCtype> names_;  // Names that differ from Oniguruma's.
  std::vector<Ranges> ranges_;              // By type; empty: as in Oniguruma.
  std::vector<std::vector<OnigCodePoint>> numbers_;
};

const Properties& properties() {
  static const Properties properties;
  return properties;
}

// The functions of the encoding.

int type_of_name(OnigEncodingType*, OnigUChar* begin, OnigUChar* end) {
  const std::string_view name(reinterpret_cast<const char*>(begin),
                              static_cast<size_t>(end - begin));
  const OnigCtype type = properties().type_of(name);
  return type == kUnknown ? ONIGERR_INVALID_CHAR_PROPERTY_NAME : static_cast<int>(type);
}

int has_type(OnigCodePoint code, OnigCtype type) {
  const bool is_own = (code >= kFirstOther || type >= kFirstOwn) && properties().is_changed(type);
  return is_own ? static_cast<int>(properties().has(type, code))
                : OnigEncodingUTF8.is_code_ctype(code, type);
}

int ranges_of_type(OnigCtype type, OnigCodePoint* first, const OnigCodePoint** numbers) {
  if (!properties().is_changed(type))
    return OnigEncodingUTF8.get_ctype_code_range(type, first, numbers);
  *first = kFirstRange;
  *numbers = properties().numbers_of(type);
  return ONIG_NORMAL;
}

void take_ranges(const Ranges& ranges, const TakeRange& take) {
  for (const Range range : ranges)
    take(static_cast<int32_t>(range.first), static_cast<int32_t>(range.last));
}

}  // namespace

OnigEncodingTypeST* unicode_encoding() {
  static OnigEncodingType encoding = [] {
    properties();
    OnigEncodingType made = OnigEncodingUTF8;
    made.property_name_to_ctype = type_of_name;
    made.is_code_ctype = has_type;
    made.get_ctype_code_range = ranges_of_type;
    return made;
  }();
  return &encoding;
}

void for_each_range(std::string_view property, const TakeRange& take) {
  const OnigCtype type = properties().type_of(property);
  CHECK(type != kUnknown, "{}", property);
  take_ranges(properties().ranges_of(type), take);
}

void for_each_other_digit(const TakeRange& take) { take_ranges(parsed_ranges(kOtherDigits), take); }

void for_each_other_punctuation(const TakeRange& take) {
  take_ranges(parsed_ranges(kOtherPunctuation), take);
}

int32_t lower_case_of(int32_t code) {
  struct Shift {
    Range upper;
    int32_t distance = 0;
  };
  static const std::vector<Shift> shifts = [] {
    std::vector<Shift> made;
    for (std::string_view words = kLowerCases; !words.empty();) {
      std::string_view word = take_word(&words);
      const Ranges upper = parsed_ranges(take_word(&word, '>'));
      const auto lower = static_cast<int32_t>(code_of(word));
      made.push_back({upper[0], lower - static_cast<int32_t>(upper[0].first)});
    }
    return made;
  }();
  if (code >= static_cast<int32_t>(kFirstOther))
    for (const Shift& shift : shifts)
      if (contains({shift.upper}, static_cast<OnigCodePoint>(code))) return code + shift.distance;
  return utf8proc_tolower(code);
}

bool is_normalized_by_steps(int32_t code) {
  static const Ranges ranges = parsed_ranges(kNotNormalized);
  return !contains(ranges, static_cast<OnigCodePoint>(code));
}

}  // namespace tessera
