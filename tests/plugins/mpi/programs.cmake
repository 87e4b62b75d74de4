# SPDX-License-Identifier: Apache-2.0
# The program that tests/plugins/mpi starts under mpirun.
if(TARGET tessera_mpi)
  add_executable(transport_trial ${CMAKE_SOURCE_DIR}/tests/plugins/mpi/transport_trial.cc)
  target_link_libraries(transport_trial PRIVATE plugins MPI::MPI_C Threads::Threads)
  target_compile_definitions(transport_trial PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  add_dependencies(transport_trial tessera_mpi)
  add_dependencies(test_plugins_mpi transport_trial)
  target_compile_definitions(test_plugins_mpi PRIVATE TESSERA_HAS_MPI)
endif()
add_dependencies(test_plugins_mpi programs)
if(TESSERA_SANITIZE MATCHES "address")  # Open MPI does not free what it allocates.
  set_tests_properties(test_plugins_mpi PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
elseif(TESSERA_SANITIZE MATCHES "thread")
  set_tests_properties(test_plugins_mpi PROPERTIES ENVIRONMENT
    TSAN_OPTIONS=suppressions=${CMAKE_CURRENT_LIST_DIR}/thread_sanitizer.supp)
endif()
# Tests under Slurm are an entry of their own, so that ctest shows when they are skipped.
tessera_test_entry(test_plugins_mpi.slurm full "[slurm]" "")
