// SPDX-License-Identifier: Apache-2.0
// The members of an aggregate, whatever they are called. The language has no way to say this once
// for all sizes; fields_check.h asks for it only to name a member in an error message.
#pragma once

#include <cstddef>
#include <tuple>

namespace tessera::detail {

// Pointers to the members of `s`, which has `count`; none for more than 24.
template <size_t count>
consteval auto pointers_to_members(const auto& s) {
  const auto to = [](const auto&... members) { return std::tuple(&members...); };
  // clang-format off
  if constexpr (count == 1) { const auto& [a] = s; return to(a); }
  if constexpr (count == 2) { const auto& [a, b] = s; return to(a, b); }
  if constexpr (count == 3) { const auto& [a, b, c] = s; return to(a, b, c); }
  if constexpr (count == 4) { const auto& [a, b, c, d] = s; return to(a, b, c, d); }
  if constexpr (count == 5) { const auto& [a, b, c, d, e] = s; return to(a, b, c, d, e); }
  if constexpr (count == 6) { const auto& [a, b, c, d, e, f] = s; return to(a, b, c, d, e, f); }
  if constexpr (count == 7) {
    const auto& [a, b, c, d, e, f, g] = s;
    return to(a, b, c, d, e, f, g);
  }
  if constexpr (count == 8) {
    const auto& [a, b, c, d, e, f, g, h] = s;
    return to(a, b, c, d, e, f, g, h);
  }
  if constexpr (count == 9) {
    const auto& [a, b, c, d, e, f, g, h, i] = s;
    return to(a, b, c, d, e, f, g, h, i);
  }
  if constexpr (count == 10) {
    const auto& [a, b, c, d, e, f, g, h, i, j] = s;
    return to(a, b, c, d, e, f, g, h, i, j);
  }
  if constexpr (count == 11) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k] = s;
    return to(a, b, c, d, e, f, g, h, i, j, k);
  }
  if constexpr (count == 12) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l] = s;
    return to(a, b, c, d, e, f, g, h, i, j, k, l);
  }
  if constexpr (count == 13) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = s;
    return to(a, b, c, d, e, f, g, h, i, j, k, l, m);
  }
  if constexpr (count == 14) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = s;
    return to(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  }
  if constexpr (count == 15) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = s;
    return to(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
  }
  if constexpr (count == 16) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = s;
    return to(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  }
  if constexpr (count == 17) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = s;
    return to(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q);
  }
  if constexpr (count == 18) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = s;
    return to(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r);
  }
  if constexpr (count == 19) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s] = s;
    return to(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s);
  }
  if constexpr (count == 20) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = s;
    return to(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t);
  }
  if constexpr (count == 21) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u] = s;
    return to(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
  }
  if constexpr (count == 22) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v] = s;
    return to(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v);
  }
  if constexpr (count == 23) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w] = s;
    return to(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w);
  }
  if constexpr (count == 24) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x] = s;
    return to(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x);
  }
  // clang-format on
  if constexpr (count == 0 || count > 24) return std::tuple();
}

}  // namespace tessera::detail
