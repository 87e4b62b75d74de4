// SPDX-License-Identifier: Apache-2.0
// A regular expression of a tokenizer file, in Oniguruma's dialect (which Hugging Face's library
// reads), run by PCRE2. Both files and texts may be hostile: matching is bounded in steps, memory
// and time. Bytes that are no UTF-8 match as U+FFFD does.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tessera {

class Pattern {
 public:
  // Error, beginning with `where`, for what is no expression or says what PCRE2 cannot.
  Pattern(const std::string& expression, const std::string& where);
  ~Pattern();
  Pattern(Pattern&&) noexcept;

  // Calls with the begin and end of each match, in order; empty ones too, but not one that begins
  // where another ends. May run on several threads at once.
  void for_each_match(std::string_view text,
                      const std::function<void(size_t begin, size_t end)>& take) const;

 private:
  struct Compiled;
  class Search;
  std::unique_ptr<Compiled> compiled_;
};

// The same expression in PCRE2's dialect; Error for what has no equal there.
std::string pcre2_expression(const std::string& expression, const std::string& where);

}  // namespace tessera
