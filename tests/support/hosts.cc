// SPDX-License-Identifier: Apache-2.0
#include "tests/support/hosts.h"

#include <algorithm>
#include <cstring>

#include "tests/support/catch.h"

namespace tessera {
namespace {

// Copies a host's rows of an array into the global array. Rows that another host has already copied
// must be equal.
void merge_rows(const HostArray& part, const std::vector<RowRange>& rows, HostArray& whole,
                std::vector<bool>* present) {
  const size_t bytes = whole.bytes.size() / present->size();
  size_t from = 0;
  for (const RowRange& range : rows) {
    for (int64_t row = range.begin; row < range.end; ++row, from += bytes) {
      std::byte* const to = whole.bytes.data() + static_cast<size_t>(row) * bytes;
      if ((*present)[static_cast<size_t>(row)])
        REQUIRE(std::memcmp(to, part.bytes.data() + from, bytes) == 0);
      std::memcpy(to, part.bytes.data() + from, bytes);
      (*present)[static_cast<size_t>(row)] = true;
    }
  }
  REQUIRE(from == part.bytes.size());
}

}  // namespace

const std::vector<RowsOfHosts>& shares_of_eight() {
  static const std::vector<RowsOfHosts> all = {
      {{{0, 8}}},
      {{{0, 4}}, {{4, 8}}},
      {{{0, 2}}, {{2, 4}}, {{4, 6}}, {{6, 8}}},
      {{{0, 1}}, {{1, 6}}, {{6, 8}}},
      {{{0, 4}}, {{0, 4}}, {{4, 8}}, {{4, 8}}},
      {{{0, 1}, {4, 6}}, {{1, 4}, {6, 8}}},
      {{{0, 1}}, {{1, 2}}, {{2, 3}}, {{3, 4}}, {{4, 5}}, {{5, 6}}, {{6, 7}}, {{7, 8}}}};
  return all;
}

std::string text_of(const RowsOfHosts& rows) {
  std::string text;
  for (const auto& host : rows) {
    text += "[";
    for (const RowRange& range : host) text += fmt::format(" {}-{}", range.begin, range.end);
    text += " ]";
  }
  return text;
}

Hosts::Hosts(const Open& open, const RowsOfHosts& rows, const std::filesystem::path& run_directory)
    : rows_(rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    inputs_.push_back(open());
    inputs_.back()->attach({.infeed_host_index = static_cast<int64_t>(i),
                            .num_infeed_hosts = static_cast<int64_t>(rows.size()),
                            .rows = rows[i],
                            .run_directory = run_directory});
  }
}

std::optional<Batch> Hosts::next() {
  Batch whole = padding_batch(global_specification(*inputs_[0]));
  std::map<std::string, std::vector<bool>> present;
  for (const auto& [name, array] : whole)
    present[name].resize(static_cast<size_t>(array.shape[0]), false);
  bool ended = true;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    std::optional<Batch> batch = inputs_[i]->get_next();
    ended = ended && !batch;
    if (!batch) batch = padding_batch(inputs_[i]->specification());
    REQUIRE(batch->size() == whole.size());
    for (const auto& [name, part] : *batch)
      merge_rows(part, rows_[i], whole.at(name), &present.at(name));
  }
  for (const auto& [name, rows] : present)
    REQUIRE(std::find(rows.begin(), rows.end(), false) == rows.end());
  return ended ? std::nullopt : std::optional(std::move(whole));
}

InputState Hosts::state() const {
  InputState all;
  for (const auto& input : inputs_) {
    const InputState state = input->state();
    all.position = std::max(all.position, state.position);
    for (const auto& [key, value] : state.cursors) {
      const auto [entry, added] = all.cursors.emplace(key, value);
      INFO(key);
      REQUIRE((added || entry->second == value));
    }
  }
  return all;
}

void Hosts::restore(const InputState& state) {
  for (const auto& input : inputs_) input->restore(state);
}

void Hosts::reset() {
  for (const auto& input : inputs_) input->reset();
}

bool same_batch(const std::optional<Batch>& a, const std::optional<Batch>& b) {
  if (!a || !b) return !a && !b;
  return std::equal(a->begin(), a->end(), b->begin(), b->end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.bytes == y.second.bytes;
  });
}

}  // namespace tessera
