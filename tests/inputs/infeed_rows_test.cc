// SPDX-License-Identifier: Apache-2.0
// The global sequence of examples does not depend on the number of hosts or the mesh; each host
// reads exactly the rows of its devices.
#include <memory>
#include <set>

#include "core/graph/rules.h"
#include "inputs/indexed_input.h"
#include "inputs/prefetch.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

constexpr int64_t kBatch = 16;

// The ids of a row are its example number; counts requests.
class Numbered final : public IndexedInput {
 public:
  struct Settings {
    std::optional<int64_t> examples;  // Per epoch.
    Shuffle shuffle = Shuffle::kNone;
    bool repeat = true;
  };
  explicit Numbered(const Settings& settings)
      : IndexedInput({.name = "numbered",
                      .global_batch_size = kBatch,
                      .seq_len = 2,
                      .seed = 5,
                      .shuffle = settings.shuffle,
                      .repeat = settings.repeat}),
        examples_(settings.examples) {}
  int64_t vocab_size() const override { return 100000; }
  int64_t examples_read() const { return examples_read_; }

 private:
  std::optional<int64_t> num_examples() const override { return examples_; }
  void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const override {
    ++examples_read_;
    clear_row(row);
    row.ids[0] = static_cast<int32_t>(epoch * 1000 + index + 1);
    row.weights[0] = 1.0f;
  }
  std::optional<int64_t> examples_;
  mutable int64_t examples_read_ = 0;
};

// The rows of host `host` of `hosts`, whose devices are an equal share of the mesh.
std::vector<RowRange> host_rows(const Mesh& mesh, int64_t host, int64_t hosts) {
  const Type type = apply_rules(parse_rules("batch -> (replica, data)"), mesh,
                                make_type(DType::kI32, {{"batch", kBatch, {}}}));
  const int64_t devices = mesh.num_devices() / hosts;
  return rows_of(type, mesh, host * devices, devices);
}

struct Host {
  std::vector<RowRange> rows;
  std::unique_ptr<Numbered> input;
};

std::vector<Host> open_hosts(const Numbered::Settings& settings, const Mesh& mesh, int64_t count) {
  std::vector<Host> hosts;
  for (int64_t i = 0; i < count; ++i) {
    Host host{host_rows(mesh, i, count), std::make_unique<Numbered>(settings)};
    host.input->attach({.infeed_host_index = i, .num_infeed_hosts = count, .rows = host.rows});
    hosts.push_back(std::move(host));
  }
  return hosts;
}

// Combines the hosts' next batches: one id per row, 0 for padding; empty at the end. Rows read by
// several hosts must agree, and none may be missing.
std::vector<int32_t> next_batch(std::vector<Host>& hosts) {
  std::vector<int32_t> together(kBatch, -1);
  size_t ended = 0;
  for (Host& host : hosts) {
    const auto batch = host.input->get_next();
    if (!batch) {
      ++ended;
      continue;
    }
    const HostArray& ids = batch->at("ids");
    REQUIRE(ids.shape == host.input->specification().at("ids").shape);
    int64_t row = 0;
    for (const RowRange& range : host.rows) {
      for (int64_t i = range.begin; i < range.end; ++i, ++row) {
        const int32_t id = ids.data<int32_t>()[2 * row];
        int32_t& place = together[static_cast<size_t>(i)];
        REQUIRE((place == -1 || place == id));
        place = id;
      }
    }
    REQUIRE(row == ids.shape[0]);
  }
  if (ended > 0) {
    REQUIRE(ended == hosts.size());  // All at once.
    return {};
  }
  for (const int32_t id : together) REQUIRE(id != -1);
  return together;
}

std::vector<std::vector<int32_t>> expected_batches(const Numbered::Settings& settings, int count) {
  std::vector<Host> one = open_hosts(settings, Mesh::standard({1, 1, 1}), 1);
  std::vector<std::vector<int32_t>> batches;
  for (int i = 0; i < count; ++i) batches.push_back(next_batch(one));
  return batches;
}

const std::vector<Mesh>& meshes() {
  static const std::vector<Mesh> all = {
      Mesh::standard({1, 8, 1}),
      Mesh::standard({1, 4, 2}),
      Mesh::standard({2, 2, 2}),
      Mesh::standard({1, 1, 8}),
      Mesh::standard({2, 1, 2}, {1, 2, 1}),  // The rows of a slice are not contiguous.
      Mesh::standard({2, 2, 1}, {1, 1, 2})};
  return all;
}

TEST_CASE("the sequence of examples is the same for 1, 2, 4 and 8 hosts on every mesh") {
  for (const Numbered::Settings& settings :
       {Numbered::Settings{}, Numbered::Settings{37, Shuffle::kFull, true},
        Numbered::Settings{37, Shuffle::kNone, false}}) {
    const auto expected = expected_batches(settings, 6);
    for (const Mesh& mesh : meshes()) {
      for (const int64_t count : {1, 2, 4, 8}) {
        INFO(mesh.text() << " on " << count << " hosts");
        std::vector<Host> hosts = open_hosts(settings, mesh, count);
        for (const auto& batch : expected) REQUIRE(next_batch(hosts) == batch);
      }
    }
  }
}

TEST_CASE("a host reads the rows of its devices and no others") {
  for (const Mesh& mesh : meshes()) {
    for (const int64_t count : {1, 2, 4, 8}) {
      INFO(mesh.text() << " on " << count << " hosts");
      std::vector<Host> hosts = open_hosts({37, Shuffle::kFull, true}, mesh, count);
      for (int batch = 0; batch < 3; ++batch) next_batch(hosts);
      const int64_t devices = mesh.num_devices() / count;
      for (int64_t host = 0; host < count; ++host) {
        std::set<int64_t> shards;
        for (int64_t device = host * devices; device < (host + 1) * devices; ++device)
          shards.insert(mesh.index_along(device, {"replica", "data"}));
        const int64_t shard_rows = kBatch / mesh.size_along({"replica", "data"});
        REQUIRE(hosts[static_cast<size_t>(host)].input->examples_read() ==
                3 * shard_rows * static_cast<int64_t>(shards.size()));
      }
    }
  }
  std::vector<Host> eight = open_hosts({}, Mesh::standard({1, 8, 1}), 8);
  next_batch(eight);
  for (const Host& host : eight) REQUIRE(host.input->examples_read() == kBatch / 8);
}

TEST_CASE(
    "a run resumed on another number of hosts and another mesh continues with the next batch") {
  const Numbered::Settings settings{37, Shuffle::kFull, true};
  const auto expected = expected_batches(settings, 9);
  for (const Mesh& before : meshes()) {
    for (const Mesh& after : meshes()) {
      const int64_t first_count = 4, second_count = 2;
      std::vector<Host> first = open_hosts(settings, before, first_count);
      for (int i = 0; i < 4; ++i) REQUIRE(next_batch(first) == expected[static_cast<size_t>(i)]);
      const InputState state = first[1].input->state();
      for (const Host& host : first) REQUIRE(host.input->state().position == state.position);
      std::vector<Host> second = open_hosts(settings, after, second_count);
      for (const Host& host : second) host.input->restore(state);
      for (size_t i = 4; i < 9; ++i) REQUIRE(next_batch(second) == expected[i]);
    }
  }
}

TEST_CASE("the last batch of a finite set is padded equally on all hosts, which end together") {
  const Numbered::Settings settings{20, Shuffle::kNone, false};
  std::vector<Host> hosts = open_hosts(settings, Mesh::standard({2, 1, 2}, {1, 2, 1}), 4);
  REQUIRE(next_batch(hosts).back() == 16);
  const std::vector<int32_t> last = next_batch(hosts);
  REQUIRE(std::vector<int32_t>(last.begin(), last.begin() + 5) ==
          std::vector<int32_t>{17, 18, 19, 20, 0});
  REQUIRE(next_batch(hosts).empty());
}

TEST_CASE("the specification of the global batch is the same on every host") {
  std::vector<Host> hosts = open_hosts({}, Mesh::standard({1, 4, 2}), 8);
  for (const Host& host : hosts) {
    REQUIRE(host.input->specification().at("ids").shape == std::vector<int64_t>{4, 2});
    REQUIRE(global_specification(*host.input).at("ids").shape == std::vector<int64_t>{16, 2});
    REQUIRE(global_specification(*host.input).at("eval_sample_weights").shape ==
            std::vector<int64_t>{16});
  }
}

}  // namespace
}  // namespace tessera
