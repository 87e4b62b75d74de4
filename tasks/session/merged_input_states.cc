// SPDX-License-Identifier: Apache-2.0
#include "tasks/session/merged_input_states.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {
namespace {

// A string as "<length>:<bytes>", so that it may hold anything.
void put(const std::string& text, std::string* message) {
  *message += fmt::format("{}:{}", text.size(), text);
}

std::string take(std::string_view* message) {
  size_t size = 0;
  const auto [end, error] =
      std::from_chars(message->data(), message->data() + message->size(), size);
  const auto digits = static_cast<size_t>(end - message->data());
  CHECK(error == std::errc() && digits < message->size() && (*message)[digits] == ':' &&
            size <= message->size() - digits - 1,
        "a process sent an input state that is cut short");
  std::string text(message->substr(digits + 1, size));
  message->remove_prefix(digits + 1 + size);
  return text;
}

std::string packed(const InputState& state) {
  std::string message;
  put(std::to_string(state.position), &message);
  for (const auto& [key, value] : state.extra) {
    put(key, &message);
    put(value, &message);
  }
  return message;
}

}  // namespace

InputState merged_input_states(const InputState& mine, ProcessGroup& processes) {
  if (processes.size() == 1) return mine;
  InputState all;  // The same in every process, errors too.
  const std::vector<std::string> states = processes.gather(packed(mine), "the inputs' positions");
  for (size_t rank = 0; rank < states.size(); ++rank) {
    std::string_view message = states[rank];
    const std::string position = take(&message);
    all.position = std::max(all.position, int64_t{std::stoll(position)});
    while (!message.empty()) {
      const std::string key = take(&message), value = take(&message);
      const auto [entry, added] = all.extra.emplace(key, value);
      if (!added && entry->second != value)
        fail("the input's '{}' is '{}' in {}, but '{}' in a process before it", key, value,
             processes.name(static_cast<int>(rank)), entry->second);
    }
  }
  return all;
}

}  // namespace tessera
