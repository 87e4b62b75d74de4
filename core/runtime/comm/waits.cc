// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/waits.h"

#include <utility>

namespace tessera {

Waits::Entry::~Entry() {
  if (waits_ == nullptr) return;
  const std::lock_guard lock(waits_->mutex_);
  waits_->asked_.erase(number_);
}

Waits::Entry Waits::add(Ask ask) {
  const std::lock_guard lock(mutex_);
  asked_.emplace(next_, std::move(ask));
  return Entry(*this, next_++);
}

std::string Waits::stalled(std::chrono::milliseconds least) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, ask] : asked_)
    if (std::string text = ask(least); !text.empty()) return text;
  return "";
}

}  // namespace tessera
