// SPDX-License-Identifier: Apache-2.0
// Environment variables that hold words separated by commas.
#pragma once

#include <string>
#include <vector>

namespace tessera::cuda {

// The words of a variable, none if it is unset. Error, with the nearest known word, for others.
std::vector<std::string> setting_words(const char* variable, const std::vector<std::string>& known);

bool is_set(const char* variable);
// Whether the environment variable is "on", as it is by default, or "off". Error for other values.
bool is_on(const char* variable);

// Sets a variable for its lifetime; an empty value unsets it. While other threads run, none may
// read the environment.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value);
  ~ScopedVariable();
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::string old_;
};

}  // namespace tessera::cuda
