// SPDX-License-Identifier: Apache-2.0
#include "inputs/commands/interruption.h"

#include <csignal>

namespace tessera {
namespace {

std::atomic<bool> stop_was_asked = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // A signal's handler may set it.

void ask_to_stop(int signal) {
  stop_was_asked = true;
  std::signal(signal, SIG_DFL);
}

}  // namespace

Interruption::Interruption() {
  stop_was_asked = false;
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
}

Interruption::~Interruption() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

const std::atomic<bool>* Interruption::flag() const { return &stop_was_asked; }

}  // namespace tessera
