// SPDX-License-Identifier: Apache-2.0
// A program that tests start under mpirun: `transport_trial messages` sends messages of many sizes
// and tags between all pairs, in different orders on both sides, from several threads, and prints
// "passed" from process 0; `silent` lets process 1 stop answering; `abort` ends all from process 1.
// `bandwidth` times exchanges of two processes against MPI's own calls.
#include <mpi.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/runtime/comm/process_group.h"
#include "plugins/launch.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Empty, within an envelope, at its edge, beyond it, and several of MPI's own fragments.
constexpr size_t kSizes[] = {0, 1, 300, 4071, 4072, 4073, 5000, 70000, 400000};

std::byte byte_of(int from, int to, uint64_t tag, size_t number, size_t at) {
  const uint64_t mixed = tag * 31 + number * 7 + at * 13 + static_cast<uint64_t>(from * 5 + to * 3);
  return static_cast<std::byte>(mixed ^ (mixed >> 9));
}

struct Item {
  int peer = 0;
  uint64_t tag = 0;
  size_t number = 0;  // Of its tag: those of one tag arrive in order.
  std::vector<std::byte> bytes;
  std::unique_ptr<Message> message;
};

// Every peer, tag and size, tags interleaved; `seed` decides how, but keeps each tag's order.
std::vector<Item> items(const Transport& transport, uint64_t first_tag, uint64_t seed) {
  std::vector<Item> all;
  std::vector<std::pair<int, uint64_t>> lanes;
  for (int peer = 0; peer < transport.size(); ++peer)
    for (uint64_t tag = 0; tag < 4; ++tag)
      if (peer != transport.rank()) lanes.emplace_back(peer, first_tag + (tag << 40));
  std::vector<size_t> next(lanes.size(), 0);
  for (uint64_t draw = seed; !lanes.empty();
       draw = draw * 6364136223846793005u + 1442695040888963407u) {
    const size_t lane = (draw >> 33) % lanes.size();
    const auto [peer, tag] = lanes[lane];
    Item item{.peer = peer, .tag = tag, .number = next[lane]};
    item.bytes.resize(kSizes[next[lane]++]);
    all.push_back(std::move(item));
    if (next[lane] < std::size(kSizes)) continue;
    lanes.erase(lanes.begin() + static_cast<std::ptrdiff_t>(lane));
    next.erase(next.begin() + static_cast<std::ptrdiff_t>(lane));
  }
  return all;
}

void exchange(Transport& transport, uint64_t first_tag) {
  const auto seed = static_cast<uint64_t>(transport.rank()) * 977 + first_tag;
  std::vector<Item> receives = items(transport, first_tag, seed + 1);
  std::vector<Item> sends = items(transport, first_tag, seed + 2);
  const size_t half = receives.size() / 2;  // The others are asked for after they may have come.
  const auto receive = [&](Item& item) {
    item.message = transport.receive(item.peer, item.tag, item.bytes);
  };
  for (size_t i = 0; i < half; ++i) receive(receives[i]);
  for (Item& item : sends) {
    for (size_t at = 0; at < item.bytes.size(); ++at)
      item.bytes[at] = byte_of(transport.rank(), item.peer, item.tag, item.number, at);
    item.message = transport.send(item.peer, item.tag, item.bytes);
  }
  std::this_thread::sleep_for(20ms);
  for (size_t i = half; i < receives.size(); ++i) receive(receives[i]);
  const auto deadline = Clock::now() + 60s;
  for (Item& item : sends)
    if (!item.message->wait_until(deadline)) fail("a send to {} is not done", item.peer);
  for (Item& item : receives) {
    if (!item.message->wait_until(deadline)) fail("nothing came from {}", item.peer);
    for (size_t at = 0; at < item.bytes.size(); ++at)
      if (item.bytes[at] != byte_of(item.peer, transport.rank(), item.tag, item.number, at))
        fail("byte {} of message {} from {} is wrong", at, item.number, item.peer);
  }
}

void messages(const std::shared_ptr<Transport>& transport, ProcessGroup& processes) {
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 2; ++thread)
    threads.emplace_back([&, thread] {
      for (uint64_t round = 0; round < 2; ++round)
        exchange(*transport, (uint64_t{1} << 62) + thread * 100 + round);
    });
  for (std::thread& thread : threads) thread.join();
  processes.barrier("the end");
}

void silent(ProcessGroup& processes) {
  processes.barrier("the start");
  if (processes.rank() != 1) {
    processes.set_timeout(500ms);
    processes.barrier("what comes next");
  }
  std::this_thread::sleep_for(60s);
}

// Twice `bytes` a round, one each way, as every step of a ring does.
double exchange_seconds(Transport& transport, size_t bytes, int rounds) {
  std::vector<std::byte> out(bytes, std::byte{1}), in(bytes);
  const int peer = 1 - transport.rank();
  const Clock::time_point begin = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    const auto receive = transport.receive(peer, 1, in);
    const auto send = transport.send(peer, 1, out);
    const auto deadline = Clock::now() + 60s;
    if (!receive->wait_until(deadline) || !send->wait_until(deadline)) fail("too slow");
  }
  return std::chrono::duration<double>(Clock::now() - begin).count() / rounds;
}

double plain_exchange_seconds(int rank, size_t bytes, int rounds) {
  std::vector<std::byte> out(bytes, std::byte{1}), in(bytes);
  const double begin = MPI_Wtime();
  for (int round = 0; round < rounds; ++round)
    MPI_Sendrecv(out.data(), static_cast<int>(bytes), MPI_BYTE, 1 - rank, 1, in.data(),
                 static_cast<int>(bytes), MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return (MPI_Wtime() - begin) / rounds;
}

constexpr std::pair<size_t, int> kTimed[] = {{64, 2000},     {4096, 2000},   {65536, 1000},
                                             {1 << 20, 200}, {16 << 20, 20}, {64 << 20, 5}};

void print_line(const char* name, size_t bytes, double seconds) {
  fmt::print("{:<10} {:>9} bytes  {:>9.1f} us  {:>7.3f} GB/s each way\n", name, bytes,
             seconds * 1e6, static_cast<double>(bytes) / seconds * 1e-9);
}

void bandwidth(ProcessGroup& processes) {
  for (const auto& [bytes, rounds] : kTimed) {
    exchange_seconds(*processes.transport(), bytes, rounds / 5);
    processes.barrier("timing");
    const double seconds = exchange_seconds(*processes.transport(), bytes, rounds);
    if (processes.is_first()) print_line("transport", bytes, seconds);
  }
}

void plain_bandwidth() {
  int rank = 0;
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (const auto& [bytes, rounds] : kTimed) {
    plain_exchange_seconds(rank, bytes, rounds / 5);
    const double seconds = plain_exchange_seconds(rank, bytes, rounds);
    if (rank == 0) print_line("sendrecv", bytes, seconds);
  }
  MPI_Finalize();
}

int try_out(const std::string& what) {
  if (what == "plain_bandwidth") {
    plain_bandwidth();
    return 0;
  }
  const auto transport = join_processes(find_launch_environment());
  ProcessGroup processes(transport, 60s);
  try {
    if (what == "messages") messages(transport, processes);
    if (what == "silent") silent(processes);
    if (what == "bandwidth") bandwidth(processes);
    if (what == "abort") {
      if (processes.rank() == 1) transport->abort(7);
      processes.barrier("what never comes");
    }
  } catch (const Error& error) {
    fmt::print("process {}: {}\n", processes.rank(), error.what());
    transport->abort(3);
  }
  if (processes.is_first()) fmt::print("passed\n");
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::try_out(argc > 1 ? argv[1] : ""); }
