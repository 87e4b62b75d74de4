// SPDX-License-Identifier: Apache-2.0
#include "inputs/base_input.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace tessera {

Batch global_specification(const BaseInput& input) {
  Batch specification = input.specification();
  for (auto& [name, array] : specification) array.shape[0] = input.global_batch_size();
  return specification;
}

Batch padding_batch(const Batch& specification) {
  Batch batch = specification;
  for (auto& [name, array] : batch) {
    int64_t elements = 1;
    for (const int64_t size : array.shape) elements *= size;
    array.bytes.assign(static_cast<size_t>(elements * dtype_bytes(array.dtype)), std::byte{0});
    if (name == "paddings") std::fill_n(array.data<float>(), elements, 1.0f);
  }
  return batch;
}

std::string broken_documents_entry(const BrokenDocumentCount& count) {
  return fmt::format("{} {}", count.count, count.first);
}

BrokenDocumentCount broken_documents(const InputState& state) {
  BrokenDocumentCount all;
  for (const auto& [key, entry] : state.extra) {
    if (!key.starts_with(kBrokenDocumentsPrefix)) continue;
    int64_t count = 0;
    const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), count);
    if (error != std::errc() || count < 1) continue;
    all.count += count;
    if (all.first.empty() && end != entry.data() + entry.size())
      all.first = entry.substr(static_cast<size_t>(end + 1 - entry.data()));
  }
  return all;
}

}  // namespace tessera
