// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/inspected_device.h"

#include <utility>

#include "core/graph/op.h"

namespace tessera {
namespace {

// Returns whether a run is observed: an executor asks for times of launches only in such runs.
bool is_observed(const LaunchTime* time) { return time != nullptr; }

class InspectedStream final : public Stream {
 public:
  InspectedStream(std::unique_ptr<Stream> stream, StreamUse use, const LaunchInspector& inspector)
      : stream_(std::move(stream)),
        kind_(use == StreamUse::kCommunication ? LaunchKind::kStart : LaunchKind::kRun),
        inspector_(inspector) {}

  void launch(Kernel& kernel, const LaunchArgs& args, LaunchTime* time) override {
    if (!is_observed(time)) return stream_->launch(kernel, args, time);
    const InspectedLaunch launch{kind_, launches_, args.inputs, args.outputs, *stream_};
    synchronize_here();
    inspector_.before(launch);
    stream_->launch(kernel, args, time);
    ++launches_;
    if (kind_ == LaunchKind::kStart) return;
    synchronize_here();
    inspector_.after(launch);
  }
  void wait(Event& event, LaunchTime* time) override {
    stream_->wait(event, time);
    if (!is_observed(time)) return;
    synchronize_here();
    inspector_.after({LaunchKind::kWait, waits_++, {}, {}, *stream_});
  }

  void copy_from_host(DeviceAddress to, std::span<const std::byte> from) override {
    stream_->copy_from_host(to, from);
  }
  void copy_to_host(std::span<std::byte> to, DeviceAddress from) override {
    stream_->copy_to_host(to, from);
  }
  void record(Event& event) override { stream_->record(event); }
  void synchronize() override { stream_->synchronize(); }
  void synchronize(Event& event) override { stream_->synchronize(event); }
  std::unique_ptr<Kernel> capture(const std::function<void()>& enqueue) override {
    return stream_->capture(enqueue);
  }

  // Counts from the last wait for this stream: the wrapped stream counts from there.
  LaunchProgress progress() const override {
    LaunchProgress progress = stream_->progress();
    progress.done += known_;
    return progress;
  }
  // Both streams belong to this device, so the cast is safe.
  void begin_run(Stream& order) override {
    stream_->begin_run(*static_cast<InspectedStream&>(order).stream_);
    launches_ = waits_ = known_ = 0;
  }

 private:
  void synchronize_here() {
    stream_->synchronize();
    known_ = launches_;
  }

  std::unique_ptr<Stream> stream_;
  LaunchKind kind_;
  const LaunchInspector& inspector_;
  int64_t launches_ = 0, waits_ = 0;  // Counts of the current run if it is observed.
  int64_t known_ = 0;                 // How many launches are known to be done.
};

class InspectedDevice final : public Device {
 public:
  InspectedDevice(Device& device, LaunchInspector inspector, std::function<bool(const OpDef&)> runs)
      : device_(device), inspector_(std::move(inspector)), runs_(std::move(runs)) {}

  std::string_view kind() const override { return device_.kind(); }
  std::string description() const override { return device_.description(); }
  double peak_flops(DType dtype) const override { return device_.peak_flops(dtype); }
  int64_t available_bytes() const override { return device_.available_bytes(); }
  DeviceAddress allocate(int64_t bytes) override { return device_.allocate(bytes); }
  void release(DeviceAddress memory, int64_t bytes) override { device_.release(memory, bytes); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return device_.prepare(graph, node);
  }
  bool has_kernel(const OpDef& op) const override {
    return device_.has_kernel(op) && (!runs_ || runs_(op));
  }
  std::string share_choices(const std::string& others) override {
    return device_.share_choices(others);
  }
  void permit_nondeterminism() override { device_.permit_nondeterminism(); }
  void reject_mismatches() override { device_.reject_mismatches(); }
  std::unique_ptr<Stream> make_stream(StreamUse use) override {
    return std::make_unique<InspectedStream>(device_.make_stream(use), use, inspector_);
  }
  std::unique_ptr<Event> make_event() override { return device_.make_event(); }
  void map(DeviceAddress memory, int64_t bytes, HostAccess access, const UseBytes& use) override {
    device_.map(memory, bytes, access, use);
  }
  bool is_asynchronous() const override { return device_.is_asynchronous(); }
  std::shared_ptr<std::byte[]> host_memory(int64_t bytes) override {
    return device_.host_memory(bytes);
  }

 private:
  Device& device_;
  LaunchInspector inspector_;
  std::function<bool(const OpDef&)> runs_;
};

}  // namespace

std::unique_ptr<Device> make_inspected_device(Device& device, LaunchInspector inspector,
                                              std::function<bool(const OpDef&)> runs) {
  return std::make_unique<InspectedDevice>(device, std::move(inspector), std::move(runs));
}

}  // namespace tessera
