// SPDX-License-Identifier: Apache-2.0
// The programs of an executor as plans over arenas. Devices of one stage of a pipeline share a
// plan, since their graphs differ only in attributes; every stage has its own arena size. Without
// the mesh axis `stage`, all devices are one stage. It compiles and plans; it allocates and runs
// nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/compile/memory/step_program.h"
#include "core/compile/stages/homes.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/runtime/executor/compile.h"
#include "core/runtime/executor/device_executor.h"
#include "core/runtime/executor/program_arrays.h"
#include "core/runtime/executor/sharded_place.h"

namespace tessera {

// Inputs or outputs of a program, in the order of the traced graph, and where they are.
struct PlacedArrays {
  std::vector<ProgramArray> arrays;
  std::vector<DeviceOffsets> offsets;  // One for each of `arrays`; set by PlannedPrograms::place().
};

struct PlannedProgram {
  std::vector<StepProgram> plans;                    // By arena.
  std::vector<std::shared_ptr<const Graph>> graphs;  // By device of this process.
  PlacedArrays inputs, outputs;                      // Arrays of all stages together.
  std::vector<SavedValue> saved;
  StageHomes homes;
  std::vector<std::string> updates;  // The parameters and state that it writes.
  bool writes_parameters = false;
  // The program that makes the copies of parameters that this one keeps (keep_copies()).
  std::optional<int> copies;
};

// The plan data that the devices of a stage share.
struct StageArena {
  int64_t stage = 0;
  int64_t device = 0;  // Number of the device whose graphs are planned.
  size_t part = 0;     // Index of the device of this process that knows its kernels.
  std::vector<Placement> placed =
      {};  // All arrays with a fixed place: parameters, state, copies of those.
  int64_t persistent_bytes = 0;
  int64_t bytes = 0;  // Size of one arena for all programs so far.
};

class PlannedPrograms {
 public:
  using Work = std::function<void(DeviceExecutor&, size_t)>;

  // `planning`: plans all stages of the mesh, each with the first part. `on_all` calls work(part,
  // index) for each part, on its thread. Both must outlive this object.
  PlannedPrograms(const DeviceParts& parts, bool planning, std::function<void(Work)> on_all)
      : parts_(parts), planning_(planning), on_all_(std::move(on_all)) {}

  // Sets the mesh of all programs, before the first is added.
  void set_mesh(const Mesh& mesh);
  // Returns the program's number. Error if it reads what another one updates on other stages only.
  // `seconds` are for overlap().
  int add(const Graph& traced, const GraphOfDevice& graph_of, Communication communication,
          const LaunchSeconds& seconds, std::vector<SavedValue> saved);
  // Makes the offsets final, when all programs are added.
  void place();

  const Mesh& mesh() const { return mesh_; }
  const std::vector<PlannedProgram>& programs() const { return programs_; }
  const PlannedProgram& program(int number) const { return programs_[static_cast<size_t>(number)]; }
  // Arenas of the stages that have devices in this process, ordered by first device.
  const std::vector<StageArena>& arenas() const { return arenas_; }
  size_t arena_of(size_t part) const { return arena_of_[part]; }  // Index into arenas().
  const std::vector<Buffer>& buffers() const { return buffers_; }
  StageHomes homes() const;  // Stages that hold each of buffers().
  const DeviceOffsets& buffer_offsets(size_t buffer) const { return buffer_offsets_[buffer]; }

 private:
  void plan_stages(PlannedProgram& program, const GraphOfDevice& graph_of,
                   Communication communication, const LaunchSeconds& seconds);
  void add_buffers(const PlannedProgram& program, const Graph& traced);
  void add_copies();
  void check_updates() const;
  void move_up(StepProgram& plan, int64_t persistent_bytes) const;
  void place_new(size_t arena, const PlannedProgram& program);
  // Returns the offsets of each array, found by its name.
  template <typename Array>
  std::vector<DeviceOffsets> offsets_of(
      const std::vector<Array>& arrays,
      const std::function<const std::vector<Placement>&(size_t)>& in_arena) const;

  const DeviceParts& parts_;
  bool planning_;
  std::function<void(Work)> on_all_;
  Mesh mesh_;
  std::vector<StageArena> arenas_;
  std::vector<size_t> arena_of_;  // By part.
  std::vector<PlannedProgram> programs_;
  std::vector<Buffer> buffers_;
  std::vector<DeviceOffsets> buffer_offsets_;  // One for each of `buffers_`.
};

}  // namespace tessera
