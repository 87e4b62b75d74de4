// SPDX-License-Identifier: Apache-2.0
#include "core/ops/vjp.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"

namespace tessera {

double no_flops(const Graph&, const Node&) { return 0.0; }

Tensor match(const Tensor& cotangent, const Tensor& primal) {
  std::vector<std::string> extra;
  for (const Axis& axis : cotangent.type().axes) {
    if (!primal.has(axis.name)) extra.push_back(axis.name);
  }
  Tensor matched = extra.empty() ? cotangent : reduce_sum(cotangent, joined(extra));
  const std::vector<std::string> order = primal.type().names();
  if (matched.type().names() != order) matched = transpose(matched, joined(order));
  return matched;
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, " "));
}

std::vector<std::string> names_at(const Operand& operand, std::string_view text) {
  const ErrorPrefix where(operand.site.text());
  return parse_names(text);
}

}  // namespace tessera
