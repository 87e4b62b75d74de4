// SPDX-License-Identifier: Apache-2.0
// Calls of functions that a plugin's class overrides. Whatever such a function throws or returns
// becomes an Error that names the class and the function; of an exception, also the file that the
// class was loaded from.
#pragma once

#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "core/base/error.h"

namespace tessera {

// "mine::Ffn::fprop()" of "fprop()"; of "", "the constructor of mine::Ffn".
std::string function_name(const std::type_info& of, std::string_view function);

// In a catch block. Errors, filesystem errors and std::bad_alloc have messages of their own and
// pass; anything else, whatever its type, becomes an Error that names the function and the file.
[[noreturn]] void rethrow_from(const std::type_info& of, std::string_view function);

// The result of `call`, which calls this function of the class, or of the class of `object`.
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

// Error for what a function of the object has returned: "mine::Sgd::slots(): …".
template <typename Object, typename... Args>
[[noreturn]] void fail_in(const Object& object, std::string_view function,
                          fmt::format_string<Args...> format, Args&&... args) {
  fail("{}: {}", function_name(typeid(object), function),
       fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tessera
