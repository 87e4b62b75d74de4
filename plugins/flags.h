// SPDX-License-Identifier: Apache-2.0
// The flags of a command line by name, as they are given.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class Flags {
 public:
  // Error for an unknown flag, with the nearest one, and for a missing or superfluous value.
  explicit Flags(const std::vector<std::string>& arguments);

  bool has(const std::string& flag) const { return given_.contains(flag); }
  // "" if it is not given.
  std::string text(const std::string& flag) const;
  // Of a flag that may be repeated.
  std::vector<std::string> texts(const std::string& flag) const;
  // nullopt if it is not given. Error if it is not a whole number, or below `least`.
  std::optional<int64_t> number(const std::string& flag, int64_t least) const;
  std::vector<std::string> names() const;  // Of those that are given.

  // Error if one of these is given: they need `what`.
  void need(std::string_view what, std::initializer_list<const char*> flags) const;
  // Error if one of these is given; `advice` ends the message.
  void refuse(std::string_view with, std::initializer_list<const char*> flags,
              std::string_view advice = "") const;

 private:
  std::map<std::string, std::vector<std::string>> given_;
};

// The names of all flags of runexp.
std::vector<std::string> known_flags();

// Error if the value of a flag is not a whole number, or below `least`.
int64_t whole_number(std::string_view flag, std::string_view text, int64_t least);

// The index of a flag's value among `names`; Error if it is not one of them.
size_t index_in(const std::vector<std::string>& names, std::string_view flag,
                const std::string& value);

}  // namespace tessera
