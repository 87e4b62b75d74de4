// SPDX-License-Identifier: Apache-2.0
// What the tests of matrix products share.
#pragma once

#include <cstdlib>
#include <string>

#include "plugins/cuda/check/product_check.h"

namespace tessera::cuda {

// Sets an environment variable for its lifetime; an empty value unsets it.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* const old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~ScopedVariable() { set(old_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void set(const std::string& value) const {
    if (value.empty())
      ::unsetenv(name_);
    else
      ::setenv(name_, value.c_str(), 1);
  }
  const char* name_;
  std::string old_;
};

}  // namespace tessera::cuda
