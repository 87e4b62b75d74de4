// SPDX-License-Identifier: Apache-2.0
// How long to wait for another process or device. Time in which this process itself was stopped
// (SIGSTOP, Ctrl-Z, a suspended machine) does not count, or it would blame the others when it wakes
// up: the limit then begins again. It does not wait by itself.
#pragma once

#include <chrono>
#include <string>

namespace tessera {

class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  // Who waits looks this often whether the limit has passed.
  static constexpr std::chrono::milliseconds kLook{50};
  // A look that comes so late means that this process did not run.
  static constexpr std::chrono::milliseconds kStopped{1000};

  explicit Patience(std::chrono::milliseconds limit = {}, Clock::time_point now = Clock::now())
      : limit_(limit), begin_(now), last_look_(now) {}

  // Until when to wait before the next look.
  Clock::time_point next_look() const { return last_look_ + kLook; }
  // To be called before waiting begins: no look was due since the last one, because this process
  // worked itself. Long work does not count against the limit: the others cannot help it, and the
  // process may have been stopped meanwhile.
  void resume(Clock::time_point now = Clock::now());
  // Whether the limit has passed.
  bool look(Clock::time_point now = Clock::now());
  // As of the last look, whether nine tenths of the limit have passed.
  bool is_nearly_over() const { return (last_look_ - begin_) * 10 >= limit_ * 9; }
  std::chrono::milliseconds limit() const { return limit_; }
  // " (this process itself was held up for 9.2 s)" if it was; or "".
  std::string held_up() const;

 private:
  std::chrono::milliseconds limit_;
  Clock::time_point begin_;
  Clock::time_point last_look_;
  std::chrono::milliseconds stopped_{0};
};

}  // namespace tessera
