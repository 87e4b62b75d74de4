// SPDX-License-Identifier: Apache-2.0
// An input that forwards every call to another one, perhaps of a plugin. Any exception of that
// input, of any type, becomes an Error that names its class. Derived classes override the calls
// that they change.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/plugin_call.h"
#include "inputs/base_input.h"

namespace tessera {

class WrappedInput : public BaseInput {
  using In = BaseInput;
  template <typename Function, typename... Arguments>
  decltype(auto) call(std::string_view name, Function function, Arguments&&... arguments) const {
    return calling(*input_, name, [&]() -> decltype(auto) {
      return std::invoke(function, *input_, std::forward<Arguments>(arguments)...);
    });
  }

 public:
  explicit WrappedInput(std::unique_ptr<BaseInput> input) : input_(std::move(input)) {}

  const std::string& name() const override { return call("name()", &In::name); }
  int64_t global_batch_size() const override {
    return call("global_batch_size()", &In::global_batch_size);
  }
  void attach(const Infeed& infeed) override { call("attach()", &In::attach, infeed); }
  int64_t vocab_size() const override { return call("vocab_size()", &In::vocab_size); }
  bool follows_sizes() const override { return call("follows_sizes()", &In::follows_sizes); }
  bool repeats() const override { return call("repeats()", &In::repeats); }
  Batch specification() const override { return call("specification()", &In::specification); }
  std::optional<Batch> get_next() override { return call("get_next()", &In::get_next); }
  std::optional<Batch> peek() override { return call("peek()", &In::peek); }
  void reset() override { call("reset()", &In::reset); }
  InputState state() const override { return call("state()", &In::state); }
  void restore(const InputState& state) override { call("restore()", &In::restore, state); }
  void recycle(Batch batch) override { call("recycle()", &In::recycle, std::move(batch)); }
  const Tokenizer* tokenizer() const override { return call("tokenizer()", &In::tokenizer); }
  bool documents_begin_with_start_id() const override {
    return call("documents_begin_with_start_id()", &In::documents_begin_with_start_id);
  }
  std::vector<std::string> remarks() const override { return call("remarks()", &In::remarks); }
  std::vector<std::string> sources() const override { return call("sources()", &In::sources); }

 protected:
  std::unique_ptr<BaseInput> input_;
};

}  // namespace tessera
