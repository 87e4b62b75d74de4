// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/config/mesh_config.h"

#include "tests/support/catch.h"
#include "tests/support/transports.h"

namespace tessera {
namespace {

using Hosts = std::vector<std::string>;

TEST_CASE("devices are assigned to the hosts of their processes", "[mesh_hosts]") {
  const auto transports = make_loopback(3, {"a", "a", "b"});
  const ProcessGroup processes(transports[1]);
  REQUIRE(hosts_of_devices(processes, 2) == Hosts{"a", "a", "a", "a", "b", "b"});
}

TEST_CASE("a mesh with slices accepts slow links between hosts", "[mesh_hosts]") {
  const Mesh two_slices = Mesh::standard({1, 2, 1}, {1, 2, 1});
  REQUIRE(check_hosts(two_slices, {"a", "a", "b", "b"}).empty());
  // A slice may span hosts with fast links, and a host may hold several slices.
  REQUIRE(check_hosts(two_slices, {"a", "b", "c", "d"}).empty());
  REQUIRE(check_hosts(Mesh::standard({1, 1, 1}, {1, 4, 1}), {"a", "a", "b", "b"}).empty());
  // On a single host any mesh is valid.
  REQUIRE(check_hosts(two_slices, {"a", "a", "a", "a"}).empty());
}

TEST_CASE("a mesh of one slice on several hosts gives a note with the shapes that fit",
          "[mesh_hosts]") {
  REQUIRE(check_hosts(Mesh::standard({1, 4, 1}), {"a", "a", "b", "b"}) ==
          "note: the mesh replica=1 data=4 mdl=1 is one slice, but its devices are on 2 hosts "
          "(a, b): links between hosts are assumed to be fast; set ici_mesh_shape=[1,2,1] and "
          "dcn_mesh_shape=[1,2,1] if they are slow");
  REQUIRE(check_hosts(Mesh::standard({1, 1, 4}), {"a", "b", "c", "c"}) ==
          "note: the mesh replica=1 data=1 mdl=4 is one slice, but its devices are on 3 hosts "
          "(a, b, c): links between hosts are assumed to be fast");
}

TEST_CASE("a slice that shares its hosts with another slice is rejected", "[mesh_hosts]") {
  const Mesh mesh = Mesh::standard({1, 2, 1}, {2, 1, 1});
  REQUIRE_THROWS_WITH(
      check_hosts(mesh, {"a", "b", "a", "b"}),
      "slice 0 of the mesh (devices 0 to 1) is spread over the hosts a, b, and host a has other "
      "slices too: 2 slices (dcn_mesh_shape) do not fit 2 hosts; start the processes of each host "
      "consecutively (mpirun --map-by slot, srun --distribution=block), or set "
      "ici_mesh_shape=[1,2,1] and dcn_mesh_shape=[2,1,1]");
}

}  // namespace
}  // namespace tessera
