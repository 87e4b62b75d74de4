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

// For a thread that mostly waits and should run at once when what it waits for happens, also where
// others compute on every processor: gives the calling thread short time slices, for which the
// scheduler runs it sooner, and exact timers. It gets no more than its share of the processors.
// Does what the kernel allows; it is never an error.
void make_thread_prompt();

}  // namespace tessera
