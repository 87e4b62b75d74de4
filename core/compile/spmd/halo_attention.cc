// SPDX-License-Identifier: Apache-2.0
// Attention in a window over sequences that are split between devices. A device receives the keys
// and values that its queries see of the devices around it (a halo), and attends once. Their
// gradients are sent back. In contrast to a ring (ring_attention.h), keys that no query of a device
// sees are not sent to it, and its queries stay where they are: all devices have the same work.
#include <algorithm>
#include <limits>

#include "core/base/multiples.h"
#include "core/compile/spmd/ring_attention.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

using Tensors = std::vector<Tensor>;

// The segment id of keys that do not exist: those before the sequence, or after it.
constexpr double kNowhere = std::numeric_limits<int32_t>::min();

// Elements [begin, end) of the keys.
Tensor keys_of(const Tensor& x, int64_t begin, int64_t end) {
  return end - begin == x.size("key_seq") ? x : slice(x, "key_seq", begin, end);
}

// Keys [begin, end) of the device that is `distance` places further on; before this one if < 0.
struct KeyPart {
  int64_t distance, begin, end;
};

// The keys of one device and those around them. `length`: of a device's part of the sequence.
class Halo {
 public:
  Halo(const Ring& ring, int64_t length, const Attributes& attributes)
      : ring_(ring), length_(length) {
    const int64_t most = (ring.size() - 1) * length, first = first_query(attributes);
    const int64_t window = attention_window(attributes);
    before_ = window == 0 ? most : std::clamp<int64_t>(window - 1 - first, 0, most);
    const int64_t after = std::min(first, most);
    // The furthest device sends its last keys, or its first ones.
    for (int64_t i = ceil_div(before_, length); i > 0; --i)
      parts_.push_back({-i, std::max<int64_t>(0, i * length - before_), length});
    parts_.push_back({0, 0, length});
    for (int64_t i = 1; i <= ceil_div(after, length); ++i)
      parts_.push_back({i, 0, std::min(length, after - (i - 1) * length)});
  }

  bool is_empty() const { return parts_.size() == 1; }
  int64_t before() const { return before_; }

  // x["… key_seq …"] of this device and of those around it. Those at the ends receive keys of the
  // other end.
  Tensor around(const Tensor& x) const {
    return joined([&](const KeyPart& part) { return received(x, part); });
  }

  // Segment ids of the keys. No ids: all are 0.
  Tensor ids_around(const Tensor& ids, const Tensor& own) const {
    return joined([&](const KeyPart& part) {
      const Tensor part_ids = ids ? received(ids, part) : keys_of(own, part.begin, part.end);
      if (part.distance == 0) return part_ids;
      return where(exists(part), part_ids, constant(kNowhere, DType::kI32));
    });
  }

  // Sends the gradients of all these keys to the devices that have the keys, and adds them there.
  Tensor added(const Tensor& gradient) const {
    Tensor sum;
    int64_t at = 0;
    for (const KeyPart& part : parts_) {
      const int64_t size = part.end - part.begin;
      const Tensor here = keys_of(gradient, at, at + size);
      at += size;
      const Tensor own = widened(part.distance == 0 ? here : ring_.sent_on(here, part.distance));
      const Tensor term =
          size == length_ ? own : pad(own, "key_seq", part.begin, length_ - part.end);
      sum = sum ? sum + term : term;
    }
    return as_dtype(sum, gradient.dtype());
  }

 private:
  template <typename F>
  Tensor joined(const F& f) const {
    Tensors all;
    for (const KeyPart& part : parts_) all.push_back(f(part));
    return concat(all, "key_seq");
  }
  Tensor received(const Tensor& x, const KeyPart& part) const {
    const Tensor keys = keys_of(x, part.begin, part.end);
    return part.distance == 0 ? keys : ring_.sent_on(keys, -part.distance);
  }
  // Whether the sequence reaches so far from this device.
  Tensor exists(const KeyPart& part) const {
    const auto number = [](int64_t x) { return constant(static_cast<double>(x), DType::kF32); };
    return part.distance < 0 ? less_equal(number(-part.distance), ring_.number())
                             : less(ring_.number(), number(ring_.size() - part.distance));
  }

  const Ring& ring_;
  int64_t length_, before_;
  std::vector<KeyPart> parts_;  // In the order of the sequence.
};

}  // namespace

Tensors halo_attention(const Node& node, const Ring& ring, std::span<const Tensor> operands) {
  const Halo halo(ring, operands[1].size("key_seq"), node.attributes);
  const bool has_ids = node.attributes.get(key::kSegments);
  Tensors local(operands.begin(), operands.end());
  Attributes attributes = node.attributes;
  if (!halo.is_empty()) {
    attributes.set(key::kFirstQuery, first_query(attributes) + halo.before());
    attributes.set(key::kSegments, true);
    if (!has_ids) {
      const auto zeros_along = [](const Tensor& x) {
        return constant(0.0, DType::kI32, {x.type().axes[0], x.type().axes[1]});
      };
      local.insert(local.begin() + 3, {zeros_along(operands[0]), zeros_along(operands[1])});
    }
    const Tensor own_ids = local[4];
    for (const size_t i : {1, 2}) local[i] = halo.around(local[i]);
    local[4] = halo.ids_around(has_ids ? own_ids : Tensor(), own_ids);
  }
  Tensors results = trace_node(*node.op, local, attributes, {});
  if (node.op == &kAttentionGradOp && !halo.is_empty())
    for (const size_t i : {1, 2}) results[i] = halo.added(results[i]);
  return results;
}

}  // namespace tessera
