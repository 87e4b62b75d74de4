// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/simulation.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "core/base/error.h"

namespace tessera {
namespace {

// A collective without a wait of its own is waited for at once.
bool stops_kernels(const SimulatedLaunch& launch) {
  return launch.kind == LaunchKind::kWait ||
         (launch.kind == LaunchKind::kRun && launch.is_collective);
}
bool starts_collective(const SimulatedLaunch& launch) {
  return launch.is_collective && launch.kind != LaunchKind::kWait;
}
size_t awaited(const SimulatedLaunch& launch, size_t position) {
  return launch.kind == LaunchKind::kWait ? static_cast<size_t>(launch.waits_for) : position;
}

// The two streams of one device, as far as they have come.
struct DeviceStreams {
  explicit DeviceStreams(const SimulatedProgram& its_program)
      : program(its_program), is_done(its_program.launches.size(), false) {
    times.launches.resize(program.launches.size());
    times.reached.resize(program.launches.size());
    times.kernels_end = program.begin;
  }

  const SimulatedProgram& program;
  size_t next = 0;            // Launch of the stream of kernels.
  bool is_queued = false;     // Whether it is in `queue` already.
  double links_free = 0.0;    // When the last collective ends.
  std::deque<size_t> queue;   // Collectives that were started and have not run.
  bool is_waiting = false;    // The first of them has reached its rendezvous.
  size_t arrived_before = 0;  // The device that reached it before, or kNobody.
  std::vector<bool> is_done;  // By launch: whether a collective is done.
  SimulatedTimes times;
};

constexpr size_t kNobody = static_cast<size_t>(-1);

// A collective of several devices.
struct Rendezvous {
  size_t expected = 0, arrived = 0;
  size_t newest = kNobody;  // The device that has reached it last (DeviceStreams::arrived_before).
  double begin = 0.0, seconds = 0.0;
};

// The order in which devices advance does not change the times: what each stream does next is
// fixed by its program.
class Simulator {
 public:
  explicit Simulator(const std::vector<SimulatedProgram>& programs) {
    for (const SimulatedProgram& program : programs) {
      devices_.emplace_back(program);
      for (const SimulatedLaunch& launch : program.launches)
        if (starts_collective(launch) && launch.rendezvous >= 0) ++rendezvous_of(launch).expected;
    }
  }

  std::vector<SimulatedTimes> run() {
    for (size_t device = 0; device < devices_.size(); ++device) ready_.push_back(device);
    while (!ready_.empty()) {
      const size_t device = ready_.front();
      ready_.pop_front();
      while (run_kernels(device)) {
      }
    }
    std::vector<SimulatedTimes> times;
    for (DeviceStreams& it : devices_) {
      CHECK(it.next == it.program.launches.size() && it.queue.empty(),
            "device {} of {} waits for another one at launch {} of {}", times.size(),
            devices_.size(), it.next, it.program.launches.size());
      it.times.end = std::max(it.times.kernels_end, it.links_free);
      times.push_back(std::move(it.times));
    }
    return times;
  }

 private:
  Rendezvous& rendezvous_of(const SimulatedLaunch& launch) {
    const auto number = static_cast<size_t>(launch.rendezvous);
    if (number >= rendezvous_.size()) rendezvous_.resize(number + 1);
    return rendezvous_[number];
  }

  // Returns whether the stream advanced.
  bool run_kernels(size_t device) {
    DeviceStreams& it = devices_[device];
    run_collectives(device);
    const size_t before = it.next;
    double& now = it.times.kernels_end;
    for (; it.next < it.program.launches.size(); ++it.next, it.is_queued = false) {
      const SimulatedLaunch& launch = it.program.launches[it.next];
      TimeSpan& span = it.times.launches[it.next];
      if (!it.is_queued) it.times.reached[it.next] = now;
      if (starts_collective(launch) && !it.is_queued) {
        it.queue.push_back(it.next);
        it.is_queued = true;
        run_collectives(device);
      }
      if (stops_kernels(launch)) {
        const size_t collective = awaited(launch, it.next);
        if (!it.is_done[collective]) break;
        const double end = std::max(now, it.times.launches[collective].end);
        if (launch.kind == LaunchKind::kWait) span = {now, end};
        now = end;
      } else if (!launch.is_collective) {
        span = {now, now + launch.seconds};
        now = span.end;
      }
    }
    return it.next > before;
  }

  void run_collectives(size_t device) {
    DeviceStreams& it = devices_[device];
    while (!it.queue.empty() && !it.is_waiting) {
      const size_t position = it.queue.front();
      const SimulatedLaunch& launch = it.program.launches[position];
      const double begin = std::max(it.times.reached[position], it.links_free);
      if (launch.rendezvous < 0) {
        end_collective(it, {begin, begin + launch.seconds});
        continue;
      }
      it.is_waiting = true;
      Rendezvous& rendezvous = rendezvous_of(launch);
      rendezvous.begin = std::max(rendezvous.begin, begin);
      rendezvous.seconds = std::max(rendezvous.seconds, launch.seconds);
      it.arrived_before = std::exchange(rendezvous.newest, device);
      if (++rendezvous.arrived == rendezvous.expected) complete(rendezvous, device);
    }
  }

  void complete(const Rendezvous& rendezvous, size_t last) {
    for (size_t device = rendezvous.newest; device != kNobody;) {
      DeviceStreams& it = devices_[device];
      end_collective(it, {rendezvous.begin, rendezvous.begin + rendezvous.seconds});
      if (device != last) ready_.push_back(device);
      device = it.arrived_before;
    }
  }

  static void end_collective(DeviceStreams& it, const TimeSpan& span) {
    const size_t position = it.queue.front();
    it.queue.pop_front();
    it.is_waiting = false;
    it.is_done[position] = true;
    it.times.launches[position] = span;
    it.links_free = span.end;
  }

  std::deque<DeviceStreams> devices_;
  std::vector<Rendezvous> rendezvous_;  // By number.
  std::deque<size_t> ready_;            // Devices that may advance.
};

}  // namespace

std::vector<SimulatedTimes> simulate(const std::vector<SimulatedProgram>& programs) {
  return Simulator(programs).run();
}

std::vector<Stall> stalls_of(const SimulatedProgram& program, const SimulatedTimes& times) {
  std::vector<TimeSpan> busy;  // Collectives, which run one after another.
  bool is_alone = true;
  for (size_t i = 0; i < program.launches.size(); ++i) {
    if (!starts_collective(program.launches[i])) continue;
    busy.push_back(times.launches[i]);
    is_alone = is_alone && program.launches[i].rendezvous < 0;
  }
  std::vector<Stall> stalls;
  size_t first = 0;  // The first collective that may end after a stall begins.
  for (size_t i = 0; i < program.launches.size(); ++i) {
    const SimulatedLaunch& launch = program.launches[i];
    if (!stops_kernels(launch)) continue;
    const size_t collective = awaited(launch, i);
    const double begin = times.reached[i];
    const double end = std::max(begin, times.launches[collective].end);
    if (end <= begin) continue;
    Stall stall{.launch = collective, .exposed = end - begin};
    if (!is_alone) {
      while (first < busy.size() && busy[first].end <= begin) ++first;
      double communicates = 0.0;
      for (size_t k = first; k < busy.size() && busy[k].begin < end; ++k)
        communicates += std::min(busy[k].end, end) - std::max(busy[k].begin, begin);
      stall.exposed = std::min(communicates, end - begin);
      stall.idle = end - begin - stall.exposed;
    }
    stalls.push_back(stall);
  }
  return stalls;
}

}  // namespace tessera
