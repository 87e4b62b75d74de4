// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/watchdog.h"

#include <utility>

#include <fmt/core.h>

namespace tessera {

bool WaitDeadline::poll(Clock::time_point now) {
  if (now - last_poll_ >= kSuspended) {
    suspended_ += std::chrono::duration_cast<std::chrono::milliseconds>(now - last_poll_);
    begin_ = now;
  }
  last_poll_ = now;
  return now - begin_ >= timeout_;
}

void WaitDeadline::resume(Clock::time_point now) {
  if (now - last_poll_ >= kSuspended) begin_ += now - last_poll_;
  last_poll_ = now;
}

std::string WaitDeadline::suspension_note() const {
  if (suspended_.count() == 0) return "";
  return fmt::format(" (this process itself was suspended for {:.1f} s)",
                     static_cast<double>(suspended_.count()) / 1000.0);
}

StallProbes::Registration::~Registration() {
  if (probes_ == nullptr) return;
  const std::lock_guard lock(probes_->mutex_);
  probes_->probes_.erase(number_);
}

StallProbes::Registration StallProbes::add(Probe probe) {
  const std::lock_guard lock(mutex_);
  probes_.emplace(next_, std::move(probe));
  return Registration(*this, next_++);
}

std::string StallProbes::stalled(std::chrono::milliseconds least) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, probe] : probes_)
    if (std::string text = probe(least); !text.empty()) return text;
  return "";
}

}  // namespace tessera
