// SPDX-License-Identifier: Apache-2.0
// Rewrites text that Python's json writes or reads but a strict parser rejects, for documents that
// a strict parser rejected: mostly it is in values that are never read.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Replaces half of a surrogate pair, and begins strings that replace other values: a code point
// that is not a character (U+FDD0).
inline constexpr std::string_view kNotJson = "\xef\xb7\x90";

enum class Surrogates { kRefuse, kReplace };

// Rewrites integers beyond 64 bits as reals; numbers beyond f64, NaN and Infinity as strings that
// begin with kNotJson; and, if requested, lone surrogates as kNotJson. nullopt: the text has none
// of them.
std::optional<std::string> lenient_json(std::string_view text, Surrogates surrogates);

}  // namespace tessera
