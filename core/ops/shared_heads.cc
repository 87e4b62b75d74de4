// SPDX-License-Identifier: Apache-2.0
#include "core/ops/shared_heads.h"

#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/vjp.h"

namespace tessera {

void check_heads(const InferContext& context, size_t query, size_t key) {
  const Axis& heads = context.inputs[query].axis("heads");
  const Axis& kv_heads = context.inputs[key].axis("kv_heads");
  if (heads.size % kv_heads.size != 0)
    refuse(context, fmt::format("heads={} of {} is not a multiple of kv_heads={} of {}", heads.size,
                                context.names[query], kv_heads.size, context.names[key]));
  const bool shared = kv_heads.size == 1 && kv_heads.split.empty();
  if (heads.split != kv_heads.split && !shared)
    refuse(context,
           fmt::format("{} has {}, {} has {}; split both alike with rules.activations",
                       context.names[query], heads.text(), context.names[key], kv_heads.text()));
}

Tensor shared_heads(Operand x, const Axis& heads) {
  const Type& type = x.tensor.type();
  const Axis& kv_heads = type.axis("kv_heads");
  if (heads.split.empty() || !kv_heads.split.empty()) return x.tensor;
  const int64_t devices = traced_mesh().size_along(heads.split);
  if (kv_heads.size % devices == 0) return x.tensor;
  if (devices % kv_heads.size != 0) {
    fail(
        "{}: attention: heads are split by {}={}, which kv_heads={} can neither be split by nor "
        "divide; the nearest legal kv_heads is {}, or leave heads unsplit",
        x.site.text(), fmt::join(heads.split, "*"), devices, kv_heads.size,
        std::gcd(kv_heads.size, devices));
  }
  const std::vector<std::string> names = type.names();
  std::vector<std::string> order = names;
  std::erase(order, "kv_heads");
  order.insert(order.begin(), "kv_heads");
  const Tensor table = names == order ? x.tensor : transpose(x, joined(order));
  // Device d of n reads head ⌊d·kv_heads/n⌋.
  const Tensor number = cast(iota({"shared", devices, heads.split}), DType::kF32);
  const double share = static_cast<double>(kv_heads.size) / static_cast<double>(devices);
  const Tensor ids = cast((number + 0.5) * share, DType::kI32);
  const Tensor repeated = rename({gather(table, ids, "kv_heads"), x.site}, "shared", "kv_heads");
  return names == order ? repeated : transpose({repeated, x.site}, joined(names));
}

}  // namespace tessera
