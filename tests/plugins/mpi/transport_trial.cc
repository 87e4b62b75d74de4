// SPDX-License-Identifier: Apache-2.0
// A program that tests start under mpirun; process 0 prints "passed".
//   messages: all pairs exchange messages of many sizes and tags, from several threads.
//   silent: process 1 stops answering.
//   abort: process 1 ends all processes.
//   mismatch: a message is longer than the receive it matches.
//   abandoned: process 1 destroys a receive before it is done.
//   bandwidth, plain_bandwidth: times exchanges of two processes, and those of MPI_Sendrecv.
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

// Empty, around the limits (4 KiB and 64 KiB) of what MPI sends eagerly, and larger.
constexpr size_t kSizes[] = {0, 1, 300, 4095, 4096, 4097, 5000, 65537, 400000};

std::byte byte_of(int from, int to, int tag, size_t number, size_t at) {
  const uint64_t mixed = number * 7 + at * 13 + static_cast<uint64_t>(tag * 31 + from * 5 + to * 3);
  return static_cast<std::byte>(mixed ^ (mixed >> 9));
}

struct Item {
  int peer = 0;
  int tag = 0;
  size_t number = 0;  // Number within its tag; messages of one tag arrive in order.
  std::vector<std::byte> bytes;
  std::unique_ptr<Request> request;
};

// Messages of every peer, tag and size. The tags are interleaved by `seed`; each keeps its order.
std::vector<Item> items(const Transport& transport, int first_tag, uint64_t seed) {
  std::vector<Item> all;
  std::vector<std::pair<int, int>> channels;
  for (int peer = 0; peer < transport.size(); ++peer)
    for (int tag = 0; tag < 4; ++tag)
      if (peer != transport.rank()) channels.emplace_back(peer, first_tag + tag * 7000);
  std::vector<size_t> next(channels.size(), 0);
  for (uint64_t draw = seed; !channels.empty();
       draw = draw * 6364136223846793005u + 1442695040888963407u) {
    const size_t channel = (draw >> 33) % channels.size();
    const auto [peer, tag] = channels[channel];
    Item item{.peer = peer, .tag = tag, .number = next[channel]};
    item.bytes.resize(kSizes[next[channel]++]);
    all.push_back(std::move(item));
    if (next[channel] < std::size(kSizes)) continue;
    channels.erase(channels.begin() + static_cast<std::ptrdiff_t>(channel));
    next.erase(next.begin() + static_cast<std::ptrdiff_t>(channel));
  }
  return all;
}

void exchange(Transport& transport, int first_tag) {
  const auto seed = static_cast<uint64_t>(transport.rank() * 977 + first_tag);
  std::vector<Item> receives = items(transport, first_tag, seed + 1);
  std::vector<Item> sends = items(transport, first_tag, seed + 2);
  const size_t half =
      receives.size() / 2;  // The others are posted after their messages may have arrived.
  const auto receive = [&](Item& item) {
    item.request = transport.receive(item.peer, item.tag, item.bytes);
  };
  for (size_t i = 0; i < half; ++i) receive(receives[i]);
  for (Item& item : sends) {
    for (size_t at = 0; at < item.bytes.size(); ++at)
      item.bytes[at] = byte_of(transport.rank(), item.peer, item.tag, item.number, at);
    item.request = transport.send(item.peer, item.tag, item.bytes);
  }
  std::this_thread::sleep_for(20ms);
  for (size_t i = half; i < receives.size(); ++i) receive(receives[i]);
  const auto deadline = Clock::now() + 60s;
  for (Item& item : sends)
    if (!item.request->wait_until(deadline)) fail("a send to {} was not done", item.peer);
  for (Item& item : receives) {
    if (!item.request->wait_until(deadline)) fail("nothing arrived from {}", item.peer);
    for (size_t at = 0; at < item.bytes.size(); ++at)
      if (item.bytes[at] != byte_of(item.peer, transport.rank(), item.tag, item.number, at))
        fail("byte {} of message {} from {} is wrong", at, item.number, item.peer);
  }
}

void messages(const std::shared_ptr<Transport>& transport, ProcessGroup& processes) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread)
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 2; ++round) exchange(*transport, 1000 + thread * 100 + round);
    });
  for (std::thread& thread : threads) thread.join();
  processes.barrier("the end");
}

void silent(ProcessGroup& processes) {
  processes.barrier("the start");
  if (processes.rank() != 1) {
    processes.set_timeout(500ms);
    processes.barrier("the next step");
  }
  std::this_thread::sleep_for(60s);
}

// The receiver gets an error; the result is not silently wrong, and nothing hangs.
void mismatch(Transport& transport, size_t sent, size_t received) {
  std::vector<std::byte> bytes(transport.rank() == 0 ? sent : received);
  const auto request =
      transport.rank() == 0 ? transport.send(1, 1000, bytes) : transport.receive(0, 1000, bytes);
  if (!request->wait_until(Clock::now() + 60s)) fail("the request was not done");
  std::this_thread::sleep_for(60s);  // Wait until process 1 ends all processes.
}

// Later requests throw an Error with the reason, since MPI may write to the memory of this one.
void abandoned(Transport& transport) {
  std::vector<std::byte> bytes(100);
  if (transport.rank() == 1) {
    transport.receive(0, 1000, bytes).reset();
    transport.receive(0, 1001, bytes);
  }
  std::this_thread::sleep_for(60s);
}

// Seconds of a round in which both processes send `bytes`, as in a step of a ring.
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

int run_trial(const std::string& what) {
  if (what == "plain_bandwidth") {
    plain_bandwidth();
    return 0;
  }
  const auto transport = join_processes(find_launch_environment());
  ProcessGroup processes(transport, 60s);
  try {
    if (what == "messages") messages(transport, processes);
    if (what == "silent") silent(processes);
    if (what == "too_long") mismatch(*transport, 200, 100);
    if (what == "too_short") mismatch(*transport, 100, 200);
    if (what == "abandoned") abandoned(*transport);
    if (what == "bandwidth") bandwidth(processes);
    if (what == "abort") {
      if (processes.rank() == 1) transport->abort(7);
      processes.barrier("a barrier that process 1 does not join");
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

int main(int argc, char** argv) { return tessera::run_trial(argc > 1 ? argv[1] : ""); }
