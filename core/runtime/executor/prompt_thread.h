// SPDX-License-Identifier: Apache-2.0
// Threads that mostly wait, and should run at once when what they wait for is there, also where
// others compute on every processor.
#pragma once

namespace tessera {

// Makes the calling thread one of them: short turns, for which the scheduler lets it run sooner,
// and sleeps that end on time. Takes no more than its share of the processors. Does what the kernel
// allows; it is never an error.
void make_thread_prompt();

}  // namespace tessera
