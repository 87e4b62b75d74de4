// SPDX-License-Identifier: Apache-2.0
// Calls functions that a plugin's class overrides. Any exception or invalid result of such a
// function becomes an Error that names the class and the function; for an exception, also the file
// that the class was loaded from.
#pragma once

#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "core/base/error.h"

namespace tessera {

// Returns "mine::Ffn::fprop()" for "fprop()"; for "", "the constructor of mine::Ffn".
std::string function_name(const std::type_info& of, std::string_view function);

// Call it in a catch block. Errors, filesystem errors and std::bad_alloc have messages of their own
// and pass; anything else, of any type, becomes an Error that names the function and the file.
[[noreturn]] void rethrow_from(const std::type_info& of, std::string_view function);

// Returns the result of `call`, which calls this function of the class, or of the class of
// `object`.
template <typename Call>
decltype(auto) calling_class(const std::type_info& of, std::string_view function,
                             const Call& call) {
  try {
    return call();
  } catch (...) {
    rethrow_from(of, function);
  }
}
template <typename Object, typename Call>
decltype(auto) calling(const Object& object, std::string_view function, const Call& call) {
  return calling_class(typeid(object), function, call);
}

// Throws an Error about the result of a function of the object: "mine::Sgd::slots(): …".
template <typename Object, typename... Args>
[[noreturn]] void fail_in(const Object& object, std::string_view function,
                          fmt::format_string<Args...> format, Args&&... args) {
  fail("{}: {}", function_name(typeid(object), function),
       fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tessera
