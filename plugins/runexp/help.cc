// SPDX-License-Identifier: Apache-2.0
// --help, for the program, on one screen, and for each command.
#include <algorithm>

#include "core/base/printable.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "plugins/runexp/commands.h"
#include "tasks/planner/hardware/hardware.h"

namespace tessera {
namespace {

using Words = std::vector<std::string>;

constexpr std::string_view kDaily = R"(Trains a language model that an experiment describes.

  runexp --exp=quickstart.SourceLm                      train it, or resume it where it stopped
  runexp --exp=SourceLm --set num_layers=6              any unique end of the name; change a knob
  runexp --exp=SourceLm --set task.train.seed=7         or any field of the configuration
  runexp --exp=SourceLm --devices=4 --set ici_mesh_shape=[1,2,2]
                                                        on a mesh of four: replica, data, mdl
  runexp --exp=SourceLm --mode=plan --hardware=h200     predict the speed on a GPU
  runexp --exp=c4.Spmd1B --smoke                        try a large one: the same, but tiny
  runexp --config=RUN --mode=replay --step=120 --against=threads:1
                                                        find the kernel that computes differently

Modes; `runexp --mode=MODE --help` prints the flags of one
)";

constexpr std::string_view kEnd = R"(
TESSERA_CPU_LEVEL=LEVEL in the environment makes the CPU device use a lower level of instructions
than the processor has: portable, avx2, avx512, avx512_bf16 or amx.

Exit codes: 0 done; 1 the run failed; 2 bad usage or configuration.
)";

// "--mode=sweep", "--watch=RUN", "new NAME".
std::string usage_of(Command& command) {
  const CommandInfo& info = command.info();
  if (info.flag.empty()) return info.name();
  const Flag flag = *find_flag(command.flags(), info.flag);
  const std::string value = flag.is_plain() ? "" : flag.spelling().substr(2 + flag.name.size());
  return info.name() + (info.name().starts_with('-') ? value : " " + flag.placeholder);
}

std::string line_of(Command& command) {
  constexpr size_t kSummaries = 36;
  const std::string head = "  " + usage_of(command);
  return head + wrapped(std::string(command.info().summary), kSummaries).substr(head.size());
}

std::string overview() {
  std::string modes, others;
  for (const auto& command : all_commands())
    (command->info().mode.empty() ? others : modes) += line_of(*command);
  return fmt::format("{}{}\nOther commands, of which --help also prints the flags\n{}{}", kDaily,
                     modes, others, kEnd);
}

std::string help_of(Command& command) {
  std::vector<Flag> flags = command.flags();
  for (Flag& flag : flags) {
    flag.choices = values_of(flag);
    if (flag.info.text.empty()) flag.info.text = command.info().summary;
  }
  return fmt::format("runexp {}: {}\n\n{}", usage_of(command), command.info().summary,
                     flags_help(flags));
}

bool is_help(const std::string& word) { return word == "--help" || word == "-h"; }

}  // namespace

Words values_of(const Flag& flag) {
  if (flag.name == "mode") return mode_names();
  if (flag.name == "device" || flag.name == "kernels_of") return known_device_kinds();
  if (flag.name == "hardware") return hardware_names(own_plugins("hardware"));
  return flag.choices;
}

bool asks_help(const Words& arguments) {
  return arguments == Words{"help"} || std::ranges::any_of(arguments, is_help);
}

std::string help_text(const Words& arguments) {
  Words others = arguments;
  std::erase_if(others, is_help);
  std::erase(others, "help");
  const auto chosen = chosen_command(others);
  const bool is_named =
      !chosen->info().flag.empty() || std::ranges::any_of(others, [](const std::string& word) {
        return word == "--mode" || word.starts_with("--mode=");
      });
  return is_named ? help_of(*chosen) : overview();
}

}  // namespace tessera
