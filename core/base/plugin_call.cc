// SPDX-License-Identifier: Apache-2.0
#include "core/base/plugin_call.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <filesystem>
#include <new>

#include <boost/core/demangle.hpp>

namespace tessera {
namespace {

// Returns " of /path/mine.so": the library or program that defines the class, or "".
std::string file_of(const std::type_info& type) {
  Dl_info info{};
  const bool is_known = dladdr(&type, &info) != 0 && info.dli_fname != nullptr;
  return is_known ? fmt::format(" of {}", info.dli_fname) : "";
}

}  // namespace

std::string function_name(const std::type_info& of, std::string_view function) {
  const std::string name = boost::core::demangle(of.name());
  return function.empty() ? "the constructor of " + name : fmt::format("{}::{}", name, function);
}

void rethrow_from(const std::type_info& of, std::string_view function) {
  const auto where = [&] { return function_name(of, function) + file_of(of); };
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::filesystem::filesystem_error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(fmt::format("{} [in {}]", error_text(error), where()));
  } catch (...) {
    const std::type_info* thrown = abi::__cxa_current_exception_type();
    fail(
        "an exception of type {}, expected one derived from std::exception, such as of fail() "
        "[in {}]",
        thrown == nullptr ? "unknown" : boost::core::demangle(thrown->name()), where());
  }
}

}  // namespace tessera
