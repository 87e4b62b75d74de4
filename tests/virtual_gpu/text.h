// SPDX-License-Identifier: Apache-2.0
// Splits PTX text into statements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::virtual_gpu {

struct Statement {
  enum Kind { kEnd, kOpen, kClose, kLabel, kHeader, kDirective, kStatement } kind = kEnd;
  std::string_view text;  // Without ';' or ':'. kHeader: a function up to its '{'.
};

class Scanner {
 public:
  explicit Scanner(std::string_view text, size_t position = 0) : text_(text), position_(position) {}
  Statement next();
  size_t position() const { return position_; }
  void skip_braces();  // Skips past the '}' that closes the last '{'.

 private:
  std::string_view text_;
  size_t position_;
};

// Replaces comments by spaces.
std::string without_comments(std::string_view text);
std::string_view trim(std::string_view text);
// Splits at `separator` outside of brackets. Parts are trimmed; empty ones are dropped.
std::vector<std::string_view> split(std::string_view text, char separator);
std::vector<std::string_view> words(std::string_view text);
// Throws Fault.
uint64_t parse_number(std::string_view text);

}  // namespace tessera::virtual_gpu
