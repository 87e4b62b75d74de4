// SPDX-License-Identifier: Apache-2.0
// The keys and values of tokens seen before, while a model decodes: state of the graph being
// traced, which attention layers read and extend. A FpropScope that holds one says that the model
// decodes: its batch are some new tokens of each row, at positions of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/rules.h"
#include "core/graph/tensor.h"

namespace tessera {

class DecodeCache {
 public:
  // For the graph now traced. `starts` i32["batch"]: the position of each row's first new token.
  // `length`: the positions that are kept. `name` tells caches of one executor apart.
  DecodeCache(Tensor starts, int64_t length, std::string_view name = "");
  DecodeCache(const DecodeCache&) = delete;
  DecodeCache& operator=(const DecodeCache&) = delete;

  int64_t length() const { return length_; }
  // Where each row's new tokens start, laid out as the rows of x["batch …"] are.
  Tensor starts_beside(Operand x) const;
  // i32["batch seq"], of `seq` new tokens a row: below length(), as padding behind a row's last
  // token may lie beyond it.
  Tensor positions(int64_t seq) const;

  // What the layer that speaks keeps under this name, with rows["batch seq kv_heads head_dim"] of
  // the new tokens written: ["batch kv_heads key_seq head_dim"], as long as the cache. The state
  // is "cache/<layer path>/<name>", or "cache/<its own name>/<layer path>/<name>", split as the
  // rows are; stacked on `layers` inside of a loop.
  Tensor extended(std::string_view name, const Tensor& rows);

  // For layers that loop (core/ops/repeat.h): the body returns `loop_slices` as its last
  // slices, and what the loop stacked of them goes to `end_loop`.
  std::vector<Tensor> loop_slices() const { return slices_; }
  void end_loop(const std::vector<Tensor>& stacked);

 private:
  Graph& graph_;
  std::string prefix_;  // Of states.
  Tensor starts_;
  int64_t length_;
  // Of the loop being traced: names of states, and their next slices.
  std::vector<std::string> names_;
  std::vector<Tensor> slices_;
};

// Activation rules for `seq` left out: a single new token has no sequence to split.
AxisRules without_sequence(AxisRules rules);

// x["batch seq …"] -> ["batch …"]: of each row the element that `last` i32["batch"] numbers.
Tensor at_last(Operand x, const Tensor& last);

}  // namespace tessera
