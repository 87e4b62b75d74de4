// SPDX-License-Identifier: Apache-2.0
// Starts threads. A system may refuse one (limits on processes, containers, memory); then there is
// an Error in the user's terms, and never std::terminate.
#pragma once

#include <functional>
#include <thread>

namespace tessera {

// A thread that does `work`, which throws nothing. Error where the system refuses another thread:
// whoever owns threads that were started before ends them first.
std::thread start_thread(std::function<void()> work);

}  // namespace tessera
