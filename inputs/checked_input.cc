// SPDX-License-Identifier: Apache-2.0
#include "inputs/checked_input.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include <fmt/ranges.h>

namespace tessera {
namespace {

// Returns whether they are one or more different names.
bool are_names(const std::vector<std::string>& names) {
  return !names.empty() && std::ranges::find(names, "") == names.end() &&
         std::set(names.begin(), names.end()).size() == names.size();
}

std::string text_of(const HostArray& array) {
  return fmt::format("{}[{}]", dtype_name(array.dtype), fmt::join(array.shape, " "));
}

template <typename T>
std::span<const T> elements(const HostArray& array) {
  return {array.data<T>(), array.bytes.size() / sizeof(T)};
}

int64_t positive(const BaseInput& input, std::string_view function, int64_t value) {
  if (value < 1) fail_in(input, function, "returned {}, expected 1 or more", value);
  return value;
}

}  // namespace

int64_t CheckedInput::global_batch_size() const {
  return positive(*input_, "global_batch_size()", WrappedInput::global_batch_size());
}

int64_t CheckedInput::vocab_size() const {
  return positive(*input_, "vocab_size()", WrappedInput::vocab_size());
}

void CheckedInput::attach(const Infeed& infeed) {
  WrappedInput::attach(infeed);
  specification_ = specification();
  num_sources_ = std::ssize(sources());
  position_ = 0;
  if (!infeed.sizes.empty()) sizes_.emplace(*input_, infeed);
}

Batch CheckedInput::specification() const {
  Batch arrays = WrappedInput::specification();
  if (arrays.empty()) fail_in(*input_, "specification()", "returned no array");
  for (const auto& [name, array] : arrays)
    if (!are_names(array.axes) || array.axes[0] != "batch" ||
        array.axes.size() != array.shape.size() || std::ranges::min(array.shape) < 1 ||
        array.shape[0] != arrays.begin()->second.shape[0])
      fail_in(*input_, "specification()",
              "array '{}' has the axes [{}] and the sizes [{}], expected different axes, 'batch' "
              "first, each with a size of 1 or more, and the same rows as the others",
              name, fmt::join(array.axes, " "), fmt::join(array.shape, " "));
  return arrays;
}

void CheckedInput::check(std::string_view function, const std::optional<Batch>& batch) const {
  const int64_t rows = sizes_ ? std::ssize(sizes_->host_examples(position_)) : 0;
  for (auto [name, expected] : batch ? specification_ : Batch()) {
    if (sizes_) expected.shape[0] = rows;
    const auto found = batch->find(name);
    if (found == batch->end())
      fail_in(*input_, function, "the batch lacks '{}' of specification()", name);
    const HostArray& array = found->second;
    const int64_t bytes = element_count(expected.shape) * dtype_bytes(expected.dtype);
    if (array.dtype != expected.dtype || array.shape != expected.shape ||
        std::ssize(array.bytes) != bytes)
      fail_in(*input_, function, "'{}' is {} in {} bytes, expected {} in {}", name, text_of(array),
              array.bytes.size(), text_of(expected), bytes);
    const auto is_finite = [](float value) { return std::isfinite(value); };
    if (array.dtype == DType::kF32 && !std::ranges::all_of(elements<float>(array), is_finite))
      fail_in(*input_, function, "'{}' has an element that is infinite or nan", name);
    const auto is_source = [&](int32_t value) { return value >= 0 && value < num_sources_; };
    if (name == "source" && !std::ranges::all_of(elements<int32_t>(array), is_source))
      fail_in(*input_, function, "'source' has an element outside of sources(), which has {}",
              num_sources_);
  }
}

std::optional<Batch> CheckedInput::get_next() {
  std::optional<Batch> batch = WrappedInput::get_next();
  check("get_next()", batch);
  position_ += batch ? 1 : 0;
  return batch;
}

std::optional<Batch> CheckedInput::peek() {
  std::optional<Batch> batch = WrappedInput::peek();
  check("peek()", batch);
  return batch;
}

void CheckedInput::reset() {
  WrappedInput::reset();
  position_ = 0;
}

InputState CheckedInput::state() const {
  InputState state = WrappedInput::state();
  if (state.position != position_)
    fail_in(*input_, "state()", "returned the position {} after batch {}", state.position,
            position_);
  return state;
}

void CheckedInput::restore(const InputState& state) {
  WrappedInput::restore(state);
  position_ = WrappedInput::state().position;  // Position in batches of the current size.
  if (position_ < 0 || (position_ == 0) != (state.position == 0))
    fail_in(*input_, "restore()", "of the position {} leads to {}", state.position, position_);
}

std::vector<std::string> CheckedInput::sources() const {
  std::vector<std::string> names = WrappedInput::sources();
  if (!are_names(names))
    fail_in(*input_, "sources()", "returned [{}], expected one or more different names",
            fmt::join(names, ", "));
  return names;
}

std::unique_ptr<BaseInput> make_input(const Template<BaseInput>& input_tpl) {
  return std::make_unique<CheckedInput>(input_tpl.instantiate());
}

void check_that_it_ends(const BaseInput& input, int64_t batches) {
  if (batches < kMostBatchesOfSet) return;
  fail(
      "input '{}' has no end after {} batches, although its repeats() is false; return nullopt of "
      "get_next() after the last one, or set num_batches",
      input.name(), batches);
}

}  // namespace tessera
