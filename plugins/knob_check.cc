// SPDX-License-Identifier: Apache-2.0
#include "plugins/knob_check.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr unsigned char kBackgrounds[2] = {0x55, 0xaa};

// The bytes of an experiment constructed in memory filled with `background`.
std::vector<unsigned char> bytes_over(const ExperimentEntry& entry, unsigned char background) {
  size_t space = entry.size + entry.alignment;
  std::vector<unsigned char> memory(space, background);
  void* place = memory.data();
  std::align(entry.alignment, entry.size, place, space);
  Experiment* experiment = entry.construct(place);
  const auto* begin = static_cast<unsigned char*>(place);
  std::vector<unsigned char> bytes(begin, begin + entry.size);
  experiment->~Experiment();
  return bytes;
}

// The bytes that construction writes: those that keep neither of two backgrounds. Pointers may
// differ between two objects.
std::vector<bool> written_bytes(const ExperimentEntry& entry) {
  const std::vector<unsigned char> first = bytes_over(entry, kBackgrounds[0]);
  const std::vector<unsigned char> second = bytes_over(entry, kBackgrounds[1]);
  std::vector<bool> written(entry.size);
  for (size_t i = 0; i < entry.size; ++i)
    written[i] = first[i] != kBackgrounds[0] || second[i] != kBackgrounds[1];
  return written;
}

}  // namespace

void check_knobs(const ExperimentEntry& entry) {
  std::vector<bool> unlisted = written_bytes(entry);
  const auto clear = [&unlisted](size_t offset, size_t size) {
    std::fill_n(unlisted.begin() + static_cast<std::ptrdiff_t>(offset), size, false);
  };
  clear(0, sizeof(void*));  // The vtable pointer.
  std::vector<KnobExtent> knobs = entry.extents(*entry.make());
  for (const KnobExtent& knob : knobs) clear(knob.offset, knob.size);
  const auto at = std::find(unlisted.begin(), unlisted.end(), true);
  if (at == unlisted.end()) return;
  const auto offset = static_cast<size_t>(at - unlisted.begin());
  const KnobExtent* before = nullptr;
  for (const KnobExtent& knob : knobs)
    if (knob.offset < offset && (before == nullptr || knob.offset > before->offset)) before = &knob;
  fail(
      "{}: {} has a member that its FIELDS does not list{}; list every member, or --set and "
      "hparams.toml do not know it",
      entry.site.text(), entry.name,
      before == nullptr ? std::string(", before all others")
                        : fmt::format(", the next after '{}'", before->name));
}

}  // namespace tessera
