// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/setting_words.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera::cuda {
namespace {

void set(const char* name, const std::string& value) {
  if (value.empty())
    ::unsetenv(name);
  else
    ::setenv(name, value.c_str(), 1);
}

}  // namespace

ScopedVariable::ScopedVariable(const char* name, const std::string& value) : name_(name) {
  if (const char* const old = std::getenv(name)) old_ = old;
  set(name, value);
}
ScopedVariable::~ScopedVariable() { set(name_, old_); }

std::vector<std::string> setting_words(const char* variable,
                                       const std::vector<std::string>& known) {
  std::vector<std::string> words;
  const char* const value = std::getenv(variable);
  std::string_view rest = value == nullptr ? "" : value;
  while (!rest.empty()) {
    const std::string& word = words.emplace_back(rest.substr(0, rest.find(',')));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    if (std::find(known.begin(), known.end(), word) == known.end())
      fail("{}: unknown word '{}'{}; expected {}, separated by commas", variable, word,
           did_you_mean(word, known), fmt::join(known, ", "));
  }
  return words;
}

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

bool is_on(const char* variable) {
  const char* const given = std::getenv(variable);
  const std::string value = given == nullptr ? "on" : given;
  if (value != "on" && value != "off")
    fail("{}: unknown value '{}'{}; expected on or off", variable, value,
         did_you_mean(value, {"on", "off"}));
  return value == "on";
}

}  // namespace tessera::cuda
