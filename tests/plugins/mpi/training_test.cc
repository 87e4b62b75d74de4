// SPDX-License-Identifier: Apache-2.0
// One run with one process and with several, on one host and on two.
#include <cmath>
#include <cstdlib>

#include "tests/support/catch.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/mpirun.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;
using Losses = std::map<std::string, std::string>;

// A transformer that trains in a second, with weights and activations split over both axes.
const std::string kTiny =
    "--exp=quickstart.CharLm --job_log_dir=run --set input.path=text.txt --set num_layers=2 "
    "--set model_dims=16 --set num_heads=4 --set hidden_dims=32 --set seq_len=16 "
    "--set global_batch_size=4 --set warmup_steps=1 --set sample_length=0 --set num_train_steps=8 "
    "--set task.train.metrics_interval_steps=1 --threads=2 "
    "--set rules.weights='embed -> data, mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl' "
    "--set rules.activations='batch -> (replica, data), mlp -> mdl, heads -> mdl, kv_heads -> mdl, "
    "vocab -> mdl' ";

// The losses of a run, which must succeed.
Losses losses(const std::string& command) {
  const TextFolder folder;
  successful(shell(folder.path(), command));
  Losses found = losses_of(folder / "run");
  REQUIRE(found.size() == 8);
  return found;
}

std::string alone(const std::string& arguments) {
  return "'" TESSERA_BINARY_DIR "/bin/runexp' " + arguments;
}

void require_near(const Losses& one, const Losses& other) {
  for (const auto& [step, loss] : one) {
    INFO("step " << step << ": " << loss << " and " << other.at(step));
    REQUIRE(std::fabs(std::stod(loss) / std::stod(other.at(step)) - 1) < 1e-5);
  }
}

TEST_CASE("two processes of two devices have the losses of one process of four and of one device",
          "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const Losses one = losses(alone(kTiny));
  const std::string four = kTiny + "--set ici_mesh_shape=[1,2,2] ";
  require_near(losses(alone(four + "--devices=4")), one);
  require_near(losses(mpirun_command("-n 2", "runexp", four + "--devices=2")), one);
  // The other axis is over the processes, which then share each block of rows.
  const std::string crossed = kTiny + "--set ici_mesh_shape=[1,1,2] --set dcn_mesh_shape=[1,1,2] ";
  require_near(losses(mpirun_command("-n 2", "runexp", crossed + "--devices=2")), one);
}

TEST_CASE("processes that were started with other flags or settings do not train a mixture",
          "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const TextFolder folder;
  const std::string usual = kTiny + "--set ici_mesh_shape=[1,2,1] ";
  const auto started = [&](const std::string& flags) {
    return shell(folder.path(), mpirun_two_commands(folder.path(), usual, usual + flags));
  };
  for (const auto& [flags, difference] :
       {std::pair<std::string, std::string>{"--set learning_rate=0.5",
                                            "learning_rate = 0.5, but process 0 has task."},
        {"--mode=eval", "it has --mode eval, but process 0 has "},
        {"--set task.train.seed=7",
         "it has task.train.seed = 7, but process 0 has task.train.seed = 1234"}}) {
    const Outcome outcome = with_code(2, started(flags));
    REQUIRE_THAT(outcome.errors, Contains("runexp: process 1 (host ") && Contains(difference) &&
                                     Contains("start all processes with the same command"));
    REQUIRE_FALSE(fs::exists(folder / "run/metrics.jsonl"));
  }
  // A host may have another number of threads.
  std::string second = usual;
  second.replace(second.find("--threads=2"), 11, "--threads=1");
  successful(shell(folder.path(), mpirun_two_commands(folder.path(), usual, second)));
}

// The command of docs/launching.md.
TEST_CASE("two processes train in a network namespace that is not reachable from outside",
          "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const std::string alone_on_net =
      "unshare --user --map-root-user --net sh -c 'ip link set lo up && exec \"$@\"' sh ";
  const TemporaryDirectory folder;
  if (shell(folder.path(), alone_on_net + "true").exit_code != 0)
    return skip_test("no user namespaces here (unshare --user --net)");
  const std::string mesh = kTiny + "--set ici_mesh_shape=[1,2,1] ";
  require_near(losses(alone_on_net + mpirun_command("-n 2", "runexp", mesh)), losses(alone(kTiny)));
}

TEST_CASE("two hosts have the losses of one device", "[mpi]") {
  if (const std::string reason = why_no_two_hosts(); !reason.empty()) return skip_test(reason);
  const Losses one = losses(alone(kTiny));
  const std::string mesh = kTiny + "--set ici_mesh_shape=[1,1,2] --set dcn_mesh_shape=[1,2,1] ";
  require_near(
      losses(two_hosts_command("", mpirun_command("-n 2", "runexp", mesh + "--devices=2"))), one);
}

TEST_CASE("mesh-invariant runs of four processes, and of two hosts, have the bits of one device",
          "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const std::string tiny = kTiny + "--set task.train.numerics=mesh_invariant ";
  const Losses one = losses(alone(tiny));
  const std::string four = tiny + "--set ici_mesh_shape=[1,2,2] ";
  REQUIRE(losses(mpirun_command("-n 4", "runexp", four)) == one);
  REQUIRE(losses(mpirun_command("-n 2", "runexp", four + "--devices=2")) == one);
  if (const std::string reason = why_no_two_hosts(); !reason.empty()) return skip_test(reason);
  const std::string hosts = tiny + "--set ici_mesh_shape=[1,1,2] --set dcn_mesh_shape=[1,2,1] ";
  REQUIRE(losses(two_hosts_command("", mpirun_command("-n 2", "runexp", hosts + "--devices=2"))) ==
          one);
}

TEST_CASE("a run resumes with another number of processes and devices", "[mpi]") {
  if (const std::string reason = why_no_mpirun(); !reason.empty()) return skip_test(reason);
  const Losses one = losses(alone(kTiny));
  const TextFolder folder;
  const auto run = [&](const std::string& command) {
    successful(shell(folder.path(), command));
    require_near(losses_of(folder / "run"), one);
  };
  const std::string saving = kTiny + "--set task.train.save_interval_steps=3 ";
  const std::string moved = saving + "--allow_config_change ";
  const auto remove_checkpoint = [&](int step) {
    std::filesystem::remove_all(folder / fmt::format("run/checkpoints/step_{:010}", step));
  };
  run(alone(saving + "--set ici_mesh_shape=[1,4,2] --devices=8"));
  remove_checkpoint(8);  // Step 6 is now the newest.
  run(mpirun_command("-n 2", "runexp", moved + "--set ici_mesh_shape=[1,2,1] --devices=1"));
  REQUIRE(std::filesystem::exists(folder / "run/checkpoints/step_0000000008/host_00001.h5"));
  remove_checkpoint(8);
  remove_checkpoint(6);  // Step 3 was saved by one process.
  run(mpirun_command("-n 2", "runexp", moved + "--set ici_mesh_shape=[2,2,2] --devices=4"));
  remove_checkpoint(8);  // Step 6 was saved by two.
  run(alone(moved));
}

TEST_CASE("a mesh slice that spans hosts of other slices is refused before step 0", "[mpi]") {
  if (const std::string reason = why_no_two_hosts(); !reason.empty()) return skip_test(reason);
  const TextFolder folder;
  const std::string mesh = kTiny + "--set ici_mesh_shape=[1,2,1] --set dcn_mesh_shape=[1,2,1] ";
  const Outcome outcome =
      shell(folder.path(),
            two_hosts_command("--slots=2", mpirun_command("--map-by node -n 4", "runexp", mesh)));
  INFO(outcome.out + outcome.errors);
  REQUIRE(outcome.exit_code == 2);
  REQUIRE_THAT(outcome.errors, Contains("runexp: slice 0 of the mesh (devices 0 to 1) is spread "
                                        "over the hosts left, right"));
}

}  // namespace
}  // namespace tessera
