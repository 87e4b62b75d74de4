// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/base/error.h"
#include "inputs/tokenizers/utf8.h"

namespace tessera {
namespace {

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

// Characters below it are in the form already, whatever stands beside them.
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

// Runs of marks by their combining class, in the order they came in within one.
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

}  // namespace

// Only stretches with affected characters are worked on. Each begins with the character before, to
// which marks may be put, and ends before one that is a starter and takes part in nothing: ASCII.
std::string_view to_normal_form(NormalForm form, std::string_view text, std::string* storage) {
  const int32_t first = first_affected(form);
  std::string out;
  std::vector<int32_t> stretch;
  size_t copied = 0;  // What of the text is in `out`.
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

}  // namespace tessera
