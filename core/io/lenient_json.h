// SPDX-License-Identifier: Apache-2.0
// Rewrites what Python's json writes or reads but a strict parser refuses, for documents that a
// strict parser refused: mostly it is in values that nobody reads.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Stands for half of a surrogate pair, and begins strings that stand for other values: a code point
// that is not a character (U+FDD0).
inline constexpr std::string_view kNotJson = "\xef\xb7\x90";

enum class Surrogates { kRefuse, kReplace };

// Integers beyond 64 bits become reals, numbers beyond f64, NaN and Infinity strings that begin
// with kNotJson, and, if asked for, lone surrogates kNotJson. nullopt: the text has none of them.
std::optional<std::string> lenient_json(std::string_view text, Surrogates surrogates);

}  // namespace tessera
