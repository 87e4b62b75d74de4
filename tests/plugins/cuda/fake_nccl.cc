// SPDX-License-Identifier: Apache-2.0
#include "tests/plugins/cuda/fake_nccl.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/plugins/cuda/fake_nccl_sums.h"
#include "tests/virtual_gpu/device_state.h"

using namespace tessera::cuda::nccl;
namespace filesystem = std::filesystem;
namespace vgpu = tessera::virtual_gpu;

// The state of one rank.
struct State {
  std::string folder;
  int ranks = 0, rank = 0;
  vgpu::DevicePtr device;
  std::atomic<bool> pending = false;  // A call was not reported as complete.
  std::atomic<bool> aborted = false;
  std::atomic<int> asked = 0;  // Queries of the state since the last call.
  std::atomic<Result> error = ncclSuccess;
  bool finalized = false;
  // Accessed by work, in the stream's order.
  int64_t collectives = 0;
  std::map<int, int64_t> sent, received;  // By peer: number of messages.

  filesystem::path file(const std::string& name) const { return filesystem::path(folder) / name; }
  bool exists(const std::string& name) const { return filesystem::exists(file(name)); }
  bool has_all(const char* kind) const {
    for (int i = 0; i < ranks; ++i)
      if (!exists(fmt::format("{}.{}", kind, i))) return false;
    return true;
  }
  // Creates the file atomically.
  void publish(const std::string& name, const std::string& bytes) const {
    const filesystem::path draft = file(fmt::format("draft.{}.{}", name, rank));
    std::ofstream(draft, std::ios::binary) << bytes;
    filesystem::rename(draft, file(name));
  }
  std::string read(const std::string& name) const {
    std::ifstream in(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void leave() const {
    publish(fmt::format("left.{}", rank), "");
    std::error_code ignored;
    if (has_all("left")) filesystem::remove_all(folder, ignored);
  }
};
struct tessera::cuda::nccl::Comm {
  std::shared_ptr<State> state = std::make_shared<State>();
};

namespace {

using StatePtr = std::shared_ptr<State>;

// ---- Faults.

std::mutex g_mutex;
std::string g_fault;
bool g_is_set = false;
int64_t g_operations = 0;
int g_rank = 0;

// Returns the fault that is planned for this process, without its rank.
std::string planned() {
  const char* const variable = std::getenv("TESSERA_FAKE_NCCL_FAULT");
  std::string fault = g_is_set || variable == nullptr ? g_fault : variable;
  if (const size_t rank = fault.find(":r"); rank != std::string::npos)
    fault = fault.substr(rank + 2) == std::to_string(g_rank) ? fault.substr(0, rank) : "";
  return fault;
}
bool plan_says(const std::string& fault) {
  const std::lock_guard lock(g_mutex);
  return planned() == fault;
}
// Returns the fault of the next operation.
std::string next_fault() {
  const std::lock_guard lock(g_mutex);
  const std::string fault = planned(), number = fmt::format(":{}", ++g_operations);
  return fault.ends_with(number) ? fault.substr(0, fault.size() - number.size()) : "";
}

// ---- Work on the device's memory.

std::byte* bytes_of(const void* address, size_t bytes, bool writes) {
  const auto begin = reinterpret_cast<CUdeviceptr>(address);
  vgpu::Allocation& allocation = vgpu::state().memory->find(begin, bytes);
  const size_t offset = begin - allocation.address;
  uint8_t* const written = allocation.initialised.get() + offset;
  if (writes) std::fill_n(written, bytes, uint8_t{1});
  if (std::find(written, written + bytes, 0) != written + bytes)
    throw vgpu::Fault{"NCCL reads memory that was never written"};
  return allocation.data.get() + offset;
}
vgpu::ByteRange range_of(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  return {begin, begin + bytes};
}
std::string read_device(const void* from, size_t bytes, vgpu::AccessLog& log) {
  log.reads.push_back(range_of(from, bytes));
  const std::byte* const source = bytes_of(from, bytes, false);
  return {reinterpret_cast<const char*>(source), bytes};
}
void write_device(void* to, const std::string& bytes, vgpu::AccessLog& log) {
  log.writes.push_back(range_of(to, bytes.size()));
  std::memcpy(bytes_of(to, bytes.size(), true), bytes.data(), bytes.size());
}

using Run = std::function<void(vgpu::AccessLog& log)>;
Result enqueue(CUstream stream, const std::string& name, const StatePtr& state,
               const std::function<bool()>& may_run, const Run& run) {
  vgpu::Task task{vgpu::Task::Kind::kKernel, name};
  if (may_run) task.may_run = [state, may_run] { return state->aborted || may_run(); };
  task.run = [state, run](uint64_t) {
    vgpu::AccessLog log;
    if (!state->aborted) run(log);
    return log;
  };
  const CUresult result = vgpu::call([&](const vgpu::Call& c) {
    const auto to = c.s.streams.at(stream);
    if (to->device != c.device || to->device != state->device)
      throw vgpu::Refusal{CUDA_ERROR_INVALID_HANDLE, "a stream of another GPU"};
    c.s.enqueue(to, task);
  });
  return result == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

// ---- Operations.

bool is_connected(const State& state) { return state.has_all("joined"); }

// Returns the error with which a call is refused, or success.
Result check_call(Comm* comm, const std::string& fault) {
  if (comm == nullptr) return ncclInvalidArgument;
  // On a non-blocking communicator the last call must be complete (ncclCommGetAsyncError).
  if (comm->state->finalized || comm->state->pending || !is_connected(*comm->state))
    return ncclInvalidUsage;
  if (fault == "refused") return ncclInternalError;
  if (fault == "remote_error") comm->state->error = ncclRemoteError;
  comm->state->asked = 0;
  return ncclSuccess;
}

// A collective: publishes `bytes` from `from`, and writes result(the operands of all ranks) to
// `to`.
struct Collective {
  std::string signature;
  const void* from;
  size_t bytes;
  void* to;
  std::function<std::string(const std::vector<std::string>&)> result;
};

std::string operand_name(int64_t number, int rank) { return fmt::format("c{}.{}", number, rank); }

// Returns the operands of all ranks, which must run the same collective.
std::vector<std::string> operands_of(const State& state, int64_t number,
                                     const std::string& signature) {
  std::vector<std::string> operands;
  for (int rank = 0; rank < state.ranks; ++rank) {
    const std::string text = state.read(operand_name(number, rank));
    const size_t end = text.find('\n');
    if (text.substr(0, end) != signature)
      throw vgpu::Fault{fmt::format("rank {} runs {}, rank {} runs {}", state.rank, signature, rank,
                                    text.substr(0, end))};
    operands.push_back(text.substr(end + 1));
  }
  return operands;
}

Result start(Comm* comm, CUstream stream, const Collective& collective) {
  const std::string fault = next_fault();
  if (const Result refusal = check_call(comm, fault); refusal != ncclSuccess) return refusal;
  if (collective.bytes == 0) return ncclSuccess;
  const StatePtr state = comm->state;
  const bool is_lost = fault == "lost" || fault == "remote_error";
  const auto number = std::make_shared<int64_t>(0);
  const auto publish = [=](vgpu::AccessLog& log) {
    *number = state->collectives++;
    const std::string operand = read_device(collective.from, collective.bytes, log);
    if (!is_lost)
      state->publish(operand_name(*number, state->rank), collective.signature + '\n' + operand);
    // All ranks have published their last operands, so earlier ones are no longer read.
    filesystem::remove(state->file(operand_name(*number - 2, state->rank)));
  };
  const auto have_all = [=] {
    for (int rank = 0; rank < state->ranks; ++rank)
      if (is_lost || !state->exists(operand_name(*number, rank))) return false;
    return true;
  };
  const auto finish = [=](vgpu::AccessLog& log) {
    const std::vector<std::string> operands = operands_of(*state, *number, collective.signature);
    write_device(collective.to, collective.result(operands), log);
  };
  const Result begun = enqueue(stream, collective.signature + " (begin)", state, nullptr, publish);
  if (begun != ncclSuccess) return begun;
  const Result ended = enqueue(stream, collective.signature, state, have_all, finish);
  if (ended == ncclSuccess) state->pending = true;
  return ended == ncclSuccess ? ncclInProgress : ended;
}

// Whether a rank's own part, of `part` bytes, lies at byte `at` of the whole ("in place") or does
// not overlap the whole.
bool is_in_place(const void* whole, size_t bytes, const void* own, size_t part, size_t at) {
  const auto begin = reinterpret_cast<uintptr_t>(whole), other = reinterpret_cast<uintptr_t>(own);
  return other == begin + at || other + part <= begin || begin + bytes <= other;
}

// A send or a receive. All messages of a group begin before any of them completes.
struct Message {
  Comm* comm;
  CUstream stream;
  bool is_send;
  void* memory;
  size_t bytes;
  int peer;
  std::string fault;
};
thread_local std::vector<Message> g_group;
thread_local int g_depth = 0;

// Returns a message's name. Messages between two ranks are numbered.
std::string message_name(const State& state, bool is_send, int peer) {
  const auto& counts = is_send ? state.sent : state.received;
  const auto found = counts.find(peer);
  return fmt::format("m{}.{}.{}", is_send ? state.rank : peer, is_send ? peer : state.rank,
                     found == counts.end() ? 0 : found->second);
}

Result begin_message(const Message& message) {
  if (!message.is_send) return ncclSuccess;
  const StatePtr state = message.comm->state;
  return enqueue(message.stream, "ncclSend (begin)", state, nullptr, [=](vgpu::AccessLog& log) {
    const std::string bytes = read_device(message.memory, message.bytes, log);
    if (message.fault.empty()) state->publish(message_name(*state, true, message.peer), bytes);
  });
}

Result end_message(const Message& message) {
  const StatePtr state = message.comm->state;
  const auto name = [=] { return message_name(*state, message.is_send, message.peer); };
  // A send is complete when its receiver has the bytes.
  const auto is_done = [=] {
    return message.fault.empty() && state->exists(name()) != message.is_send;
  };
  return enqueue(message.stream, message.is_send ? "ncclSend" : "ncclRecv", state, is_done,
                 [=](vgpu::AccessLog& log) {
                   if (message.is_send) return void(++state->sent[message.peer]);
                   const std::string bytes = state->read(name());
                   if (bytes.size() != message.bytes)
                     throw vgpu::Fault{fmt::format("ncclRecv of {} bytes, {} were sent",
                                                   message.bytes, bytes.size())};
                   write_device(message.memory, bytes, log);
                   filesystem::remove(state->file(name()));
                   ++state->received[message.peer];
                 });
}

Result run_group() {
  const std::vector<Message> messages = std::exchange(g_group, {});
  Result result = ncclSuccess;
  const auto each = [&](const auto& call, bool is_send) {
    for (const Message& message : messages)
      if (result == ncclSuccess && message.is_send == is_send) result = call(message);
  };
  each(begin_message, true);
  each(end_message, false);
  each(end_message, true);
  for (const Message& message : messages) message.comm->state->pending = result == ncclSuccess;
  return result != ncclSuccess || messages.empty() ? result : ncclInProgress;
}

Result add_message(Message message) {
  message.fault = next_fault();
  const Result refusal = check_call(message.comm, message.fault);
  if (refusal != ncclSuccess || message.bytes == 0) return refusal;
  if (message.peer < 0 || message.peer >= message.comm->state->ranks) return ncclInvalidArgument;
  g_group.push_back(std::move(message));
  return g_depth > 0 ? ncclSuccess : run_group();
}

}  // namespace

extern "C" {

void fake_nccl_set_fault(const char* fault) {
  const std::lock_guard lock(g_mutex);
  g_fault = fault;
  g_is_set = true;
  g_operations = 0;
}

Result ncclGetVersion(int* version) {
  *version = plan_says("old_version") ? 21304 : 22809;
  return ncclSuccess;
}
const char* ncclGetErrorString(Result result) {
  switch (result) {
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    default:
      return "invalid argument or usage";
  }
}
const char* ncclGetLastError(Comm*) { return ""; }

Result ncclGetUniqueId(UniqueId* id) {
  const std::string pattern = filesystem::temp_directory_path() / "tessera_fake_nccl.XXXXXX";
  if (pattern.size() >= sizeof(id->bytes)) return ncclSystemError;
  *id = {};
  std::copy(pattern.begin(), pattern.end(), id->bytes);
  return ::mkdtemp(id->bytes) != nullptr ? ncclSuccess : ncclSystemError;
}

Result ncclCommInitRankConfig(Comm** comm, int ranks, UniqueId id, int rank, Config* config) {
  if (config->size < sizeof(Config) || config->magic != Config().magic ||
      config->version < kVersion || config->blocking != 0 || rank < 0 || rank >= ranks)
    return ncclInvalidArgument;
  {
    const std::lock_guard lock(g_mutex);
    g_rank = rank;
  }
  if (plan_says("no_connection")) return ncclSystemError;
  if (!filesystem::is_directory(id.bytes)) return ncclInvalidArgument;
  *comm = new Comm;
  State& state = *(*comm)->state;
  state.folder = id.bytes;
  state.ranks = ranks, state.rank = rank, state.device = vgpu::current_device;
  if (state.device == nullptr) return ncclInvalidUsage;
  const std::string gpu = fmt::format("{} {}", getpid(), state.device->ordinal);
  for (int other = 0; other < ranks; ++other)
    if (state.read(fmt::format("joined.{}", other)) == gpu) return ncclInvalidUsage;
  state.publish(fmt::format("joined.{}", rank), gpu);
  state.pending = true;
  return ncclInProgress;
}

Result ncclCommGetAsyncError(Comm* comm, Result* error) {
  State& state = *comm->state;
  const bool waits = !is_connected(state) || state.asked++ == 0;
  *error = state.error != ncclSuccess ? state.error.load() : waits ? ncclInProgress : ncclSuccess;
  if (*error == ncclSuccess) state.pending = false;
  return ncclSuccess;
}

Result ncclCommFinalize(Comm* comm) {
  comm->state->finalized = true;
  comm->state->asked = 0;
  return ncclInProgress;
}
Result ncclCommDestroy(Comm* comm) {
  if (!comm->state->finalized) return ncclInvalidUsage;
  comm->state->leave();
  delete comm;
  return ncclSuccess;
}
Result ncclCommAbort(Comm* comm) {
  comm->state->aborted = true;
  comm->state->leave();
  delete comm;
  return ncclSuccess;
}

Result ncclGroupStart() {
  ++g_depth;
  return ncclSuccess;
}
Result ncclGroupEnd() {
  if (g_depth == 0) return ncclInvalidUsage;
  return --g_depth > 0 ? ncclSuccess : run_group();
}

Result ncclAllReduce(const void* from, void* to, size_t count, DataType type, RedOp op, Comm* comm,
                     CUstream stream) {
  if (!is_in_place(from, count * size_of(type), to, count * size_of(type), 0))
    return ncclInvalidArgument;
  return start(comm, stream,
               {fmt::format("ncclAllReduce of {} of type {}, op {}", count, static_cast<int>(type),
                            static_cast<int>(op)),
                from, count * size_of(type), to,
                [=](const auto& operands) { return reduce(operands, type, op); }});
}

Result ncclReduceScatter(const void* from, void* to, size_t count, DataType type, RedOp op,
                         Comm* comm, CUstream stream) {
  const size_t bytes = count * size_of(type);
  const auto ranks = static_cast<size_t>(comm->state->ranks);
  const size_t begin = bytes * static_cast<size_t>(comm->state->rank);
  if (!is_in_place(from, bytes * ranks, to, bytes, begin)) return ncclInvalidArgument;
  return start(comm, stream,
               {fmt::format("ncclReduceScatter of {} of type {}, op {}", count,
                            static_cast<int>(type), static_cast<int>(op)),
                from, bytes * ranks, to, [=](const auto& operands) {
                  return reduce(operands, type, op).substr(begin, bytes);
                }});
}

Result ncclAllGather(const void* from, void* to, size_t count, DataType type, Comm* comm,
                     CUstream stream) {
  const size_t bytes = count * size_of(type);
  if (!is_in_place(to, bytes * static_cast<size_t>(comm->state->ranks), from, bytes,
                   bytes * static_cast<size_t>(comm->state->rank)))
    return ncclInvalidArgument;
  return start(comm, stream,
               {fmt::format("ncclAllGather of {} of type {}", count, static_cast<int>(type)), from,
                count * size_of(type), to, [](const auto& operands) {
                  std::string all;
                  for (const std::string& operand : operands) all += operand;
                  return all;
                }});
}

Result ncclSend(const void* from, size_t count, DataType type, int peer, Comm* comm,
                CUstream stream) {
  return add_message(
      {comm, stream, true, const_cast<void*>(from), count * size_of(type), peer, ""});
}
Result ncclRecv(void* to, size_t count, DataType type, int peer, Comm* comm, CUstream stream) {
  return add_message({comm, stream, false, to, count * size_of(type), peer, ""});
}

}  // extern "C"
