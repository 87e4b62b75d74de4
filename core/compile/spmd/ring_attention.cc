// SPDX-License-Identifier: Apache-2.0
#include "core/compile/spmd/ring_attention.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/compile/spmd/ring.h"
#include "core/graph/decomposition.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

using Tensors = std::vector<Tensor>;

template <typename F>
Tensors each(const Tensors& tensors, const F& f) {
  Tensors results;
  for (const Tensor& tensor : tensors) results.push_back(f(tensor));
  return results;
}

// Returns half 0 or 1 of a sequence.
Tensor half(const Tensor& x, std::string_view axis, int64_t number) {
  const int64_t size = x.size(axis) / 2;
  return slice(x, axis, number * size, (number + 1) * size);
}
Tensors halves(const Tensors& tensors, std::string_view axis, int64_t number) {
  return each(tensors, [&](const Tensor& x) { return half(x, axis, number); });
}
Tensors chosen(const Tensor& condition, const Tensors& a, const Tensors& b) {
  Tensors results;
  for (size_t i = 0; i < a.size(); ++i) results.push_back(where(condition, a[i], b[i]));
  return results;
}

// Reorders a sequence so that causal attention is equal work for all devices. Device d has chunks
// 2d and 2d + 1, and then d and 2k - 1 - d, of which one is even and one odd.
class Zigzag {
 public:
  explicit Zigzag(const Ring& ring) : ring_(ring) {
    const Tensor& number = ring.number();
    is_even_ = equal(cast(cast(number * 0.5, DType::kI32), DType::kF32) * 2.0, number);
    for (int64_t i = 0; i < ring.size(); ++i) {
      even_.push_back(owner(2 * i));
      odd_.push_back(owner(2 * i + 1));
    }
  }

  Tensor zigzag(const Tensor& x, std::string_view axis) const {
    const Tensor even = ring_.sent(half(x, axis, 0), even_),
                 odd = ring_.sent(half(x, axis, 1), odd_);
    return concat({where(is_even_, even, odd), where(is_even_, odd, even)}, axis);
  }
  Tensor contiguous(const Tensor& x, std::string_view axis) const {
    const Tensor low = half(x, axis, 0), high = half(x, axis, 1);
    return concat({ring_.sent(where(is_even_, low, high), inverse(even_)),
                   ring_.sent(where(is_even_, high, low), inverse(odd_))},
                  axis);
  }

 private:
  int64_t owner(int64_t chunk) const { return std::min(chunk, 2 * ring_.size() - 1 - chunk); }
  static Ring::Routes inverse(const Ring::Routes& routes) {
    Ring::Routes result(routes.size());
    for (size_t i = 0; i < routes.size(); ++i)
      result[static_cast<size_t>(routes[i])] = static_cast<int64_t>(i);
    return result;
  }

  const Ring& ring_;
  Tensor is_even_;
  Ring::Routes even_, odd_;
};

// The result of attention to some of the keys.
struct Part {
  Tensor out;  // f32["batch seq heads head_dim"]
  Tensor lse;  // ["batch heads seq"]: the logarithm of the softmax's denominator.
};

// Merges the results of attention to the keys of both parts.
Part merged(const Part& a, const Part& b) {
  const Tensor maximum_lse = maximum(a.lse, b.lse);
  const Tensor of_a = exp(a.lse - maximum_lse), of_b = exp(b.lse - maximum_lse);
  const Tensor sum = of_a + of_b;
  const auto share = [&](const Part& part, const Tensor& weight) {
    return part.out * transpose(weight / sum, "batch seq heads");
  };
  return {share(a, of_a) + share(b, of_b), maximum_lse + log(sum)};
}

Part half_of(const Part& part, int64_t number) {
  return {half(part.out, "seq", number), half(part.lse, "seq", number)};
}

// Returns the part where the condition holds, otherwise attention to no keys.
Part part_if(const Tensor& condition, const Part& part) {
  return {mask(part.out, condition),
          where(condition, part.lse, constant(kEmptyLse, part.lse.dtype()))};
}

// One attention node. `queries` are the operands along seq: the queries, [segment ids], and for the
// gradient out, lse and the cotangent; `keys` those along key_seq: keys, values, [segment ids].
class RingAttention {
 public:
  RingAttention(const Node& node, const Ring& ring)
      : node_(node),
        causal_(node.attributes.get(key::kCausal)),
        segments_(node.attributes.get(key::kSegments)),
        ring_(ring),
        order_(ring) {}

  Tensors run(std::span<const Tensor> operands) const {
    Tensors queries = {operands[0]}, keys = {operands[1], operands[2]};
    if (segments_) queries.push_back(operands[3]), keys.push_back(operands[4]);
    const size_t forward = segments_ ? 5 : 3;
    queries.insert(queries.end(), operands.begin() + static_cast<int64_t>(forward), operands.end());
    queries = balanced(queries, "seq");
    keys = balanced(keys, "key_seq");
    return node_.op == &kAttentionOp ? attended(queries, keys) : gradients(queries, keys);
  }

 private:
  Tensors balanced(const Tensors& tensors, std::string_view axis) const {
    return each(tensors, [&](const Tensor& x) { return causal_ ? order_.zigzag(x, axis) : x; });
  }
  Tensor result(const Tensor& x, std::string_view axis, DType dtype) const {
    const Tensor rounded = as_dtype(x, dtype);
    return causal_ ? order_.contiguous(rounded, axis) : rounded;
  }
  Tensors sent_on(const Tensors& tensors) const {
    return each(tensors, [&](const Tensor& x) { return ring_.sent_on(x, 1); });
  }

  Tensors local(const Tensors& queries, const Tensors& keys, bool causal) const {
    Attributes attributes = node_.attributes;
    attributes.set(key::kCausal, causal);
    if (attributes.has(key::kWindow)) attributes.set(key::kWindow, 0);  // It hides no key.
    Tensors operands = {queries[0], keys[0], keys[1]};
    if (segments_) operands.insert(operands.end(), {queries[1], keys[2]});
    operands.insert(operands.end(), queries.begin() + (segments_ ? 2 : 1), queries.end());
    return trace_node(*node_.op, operands, attributes, {});
  }
  Part attend(const Tensors& queries, const Tensors& keys, bool causal = false) const {
    const Tensors results = local(queries, keys, causal);
    return {widened(results[0]), results[1]};
  }
  Tensors differentiate(const Tensors& queries, const Tensors& keys, bool causal = false) const {
    return each(local(queries, keys, causal), widened);
  }

  // The queries and keys of a causal step. `late`: the second half of the queries sees the first
  // half of all keys. `either`: the first halves if the keys are earlier, otherwise the second.
  struct CausalStep {
    CausalStep(const Ring& ring, int64_t step, const Tensors& queries, const Tensors& keys)
        : earlier(less_equal(constant(static_cast<double>(step), DType::kF32), ring.number())),
          later(logical_not(earlier)),
          late_queries(halves(queries, "seq", 1)),
          late_keys(halves(keys, "key_seq", 0)),
          either_queries(chosen(earlier, halves(queries, "seq", 0), late_queries)),
          either_keys(chosen(earlier, late_keys, halves(keys, "key_seq", 1))) {}
    // Whether the device whose keys this device has in this step is before it in the ring.
    Tensor earlier, later;
    Tensors late_queries, late_keys, either_queries, either_keys;
  };

  Tensors attended(const Tensors& queries, Tensors keys) const {
    Part all = attend(queries, keys, causal_);
    Part low, high;
    if (causal_) low = half_of(all, 0), high = half_of(all, 1);
    for (int64_t i = 1; i < ring_.size(); ++i) {
      keys = sent_on(keys);
      if (!causal_) {
        all = merged(all, attend(queries, keys));
        continue;
      }
      const CausalStep step(ring_, i, queries, keys);
      const Part either = attend(step.either_queries, step.either_keys);
      low = merged(low, part_if(step.earlier, either));
      high = merged(merged(high, attend(step.late_queries, step.late_keys)),
                    part_if(step.later, either));
    }
    if (causal_) all = {concat({low.out, high.out}, "seq"), concat({low.lse, high.lse}, "seq")};
    return {result(all.out, "seq", queries[0].dtype()), result(all.lse, "seq", all.lse.dtype())};
  }

  // Returns the gradients of queries, keys and values in one step.
  Tensors step_gradients(int64_t number, const Tensors& queries, const Tensors& keys) const {
    if (!causal_) return differentiate(queries, keys);
    const CausalStep step(ring_, number, queries, keys);
    const Tensors late = differentiate(step.late_queries, step.late_keys);
    const Tensors either = differentiate(step.either_queries, step.either_keys);
    Tensors sums = {
        concat({mask(either[0], step.earlier), late[0] + mask(either[0], step.later)}, "seq")};
    for (const size_t i : {1, 2})
      sums.push_back(concat({late[i] + mask(either[i], step.earlier), mask(either[i], step.later)},
                            "key_seq"));
    return sums;
  }

  // Sends the sums of the gradients of keys and values along with these, and then to the device
  // that holds them.
  Tensors gradients(const Tensors& queries, Tensors keys) const {
    Tensors sums = differentiate(queries, keys, causal_);
    Tensors travelling;
    for (int64_t i = 1; i < ring_.size(); ++i) {
      keys = sent_on(keys);
      const Tensors parts = step_gradients(i, queries, keys);
      sums[0] = sums[0] + parts[0];
      travelling = sent_on(travelling);
      if (travelling.empty())
        travelling = {parts[1], parts[2]};
      else
        travelling = {travelling[0] + parts[1], travelling[1] + parts[2]};
    }
    travelling = sent_on(travelling);
    const DType dtype = queries[0].dtype();
    return {result(sums[0], "seq", dtype), result(sums[1] + travelling[0], "key_seq", dtype),
            result(sums[2] + travelling[1], "key_seq", dtype)};
  }

  const Node& node_;
  bool causal_, segments_;
  const Ring& ring_;
  Zigzag order_;
};

}  // namespace

bool is_ring_attention(const Graph& graph, const Node& node, const Mesh& mesh) {
  return (node.op == &kAttentionOp || node.op == &kAttentionGradOp) &&
         mesh.size_along(graph.type(node.inputs[0]).axis("seq").split) > 1;
}

Graph ring_attention(const Graph& graph, const Node& node, const Mesh& mesh) {
  std::vector<Type> operands;
  for (const ValueId value : node.inputs) operands.push_back(local_type(graph.type(value), mesh));
  return traced_for(node, operands, {}, [&](std::span<const Tensor> inputs) {
    const Ring ring(graph, node, mesh);
    const int64_t keys = graph.type(node.inputs[1]).axis("key_seq").size;
    const bool has_halo =
        node.attributes.get(key::kCausal) && sees_nearby_keys(node.attributes, keys);
    return has_halo ? halo_attention(node, ring, inputs) : RingAttention(node, ring).run(inputs);
  });
}

}  // namespace tessera
