// SPDX-License-Identifier: Apache-2.0
#include "tasks/testing/tested_input.h"

#include <memory>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "inputs/checked_input.h"

namespace tessera {
namespace {

// Error unless the arrays of `got` are those of `expected`, or rows `first` and later of these.
void require_same(const std::string& where, const std::optional<Batch>& got,
                  const std::optional<Batch>& expected, int64_t first = 0) {
  if (got.has_value() != expected.has_value())
    fail("{} {}", where, got ? "is one too many" : "is missing: the input has ended");
  if (!got) return;
  for (const auto& [name, array] : *got) {
    const HostArray& whole = expected->at(name);
    const size_t row = whole.bytes.size() / static_cast<size_t>(whole.shape[0]);
    for (size_t i = 0; i < array.bytes.size(); ++i)
      if (array.bytes[i] != whole.bytes[static_cast<size_t>(first) * row + i])
        fail("{} has other elements in row {} of '{}'", where, i / row, name);
  }
}

}  // namespace

std::unique_ptr<BaseInput> TestedInput::opened(int64_t host, int64_t hosts) const {
  std::unique_ptr<BaseInput> input = make_input(input_tpl_);
  input->attach({.infeed_host_index = host,
                 .num_infeed_hosts = hosts,
                 .run_directory = run_directory_,
                 .run_begun = false});
  return input;
}

std::vector<Batch> TestedInput::batches(int64_t most) const {
  const std::unique_ptr<BaseInput> input = opened(0, 1);
  std::vector<Batch> batches;
  for (std::optional<Batch> batch; std::ssize(batches) < most && (batch = input->get_next());)
    batches.push_back(std::move(*batch));
  return batches;
}

void TestedInput::check(int64_t most) const {
  const std::vector<Batch> all = batches(most);
  if (all.empty()) fail("the input has no batch");
  const auto at = [&](size_t i) { return i < all.size() ? std::optional(all[i]) : std::nullopt; };
  const size_t last = std::ssize(all) < most ? all.size() + 1 : all.size();  // With its end.
  const std::unique_ptr<BaseInput> input = opened(0, 1);
  for (const char* when : {"", " after a reset"}) {
    for (size_t i = 0; i < last; ++i) {
      require_same(fmt::format("peek(), batch {}{},", i, when), input->peek(), at(i));
      require_same(fmt::format("batch {}{}", i, when), input->get_next(), at(i));
      const std::unique_ptr<BaseInput> resumed = opened(0, 1);
      resumed->restore(input->state());
      if (i + 1 < last)
        require_same(fmt::format("batch {} of a run that resumes there", i + 1),
                     resumed->get_next(), at(i + 1));
    }
    input->reset();
  }
  const int64_t rows = input->global_batch_size();
  for (int64_t host = 0; host < rows; ++host) {
    const std::unique_ptr<BaseInput> part = opened(host, rows);
    for (size_t i = 0; i < last; ++i)
      require_same(fmt::format("batch {} of host {} of {}", i, host, rows), part->get_next(), at(i),
                   host);
  }
}

}  // namespace tessera
