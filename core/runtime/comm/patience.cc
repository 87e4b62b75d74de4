// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/patience.h"

#include <fmt/core.h>

namespace tessera {

bool Patience::look(Clock::time_point now) {
  if (now - last_look_ >= kStopped) {
    stopped_ += std::chrono::duration_cast<std::chrono::milliseconds>(now - last_look_);
    begin_ = now;
  }
  last_look_ = now;
  return now - begin_ >= limit_;
}

void Patience::resume(Clock::time_point now) {
  if (now - last_look_ >= kStopped) begin_ += now - last_look_;
  last_look_ = now;
}

std::string Patience::held_up() const {
  if (stopped_.count() == 0) return "";
  return fmt::format(" (this process itself was held up for {:.1f} s)",
                     static_cast<double>(stopped_.count()) / 1000.0);
}

}  // namespace tessera
