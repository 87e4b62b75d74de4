# SPDX-License-Identifier: Apache-2.0
# Built on request: the program that tests/bench/compare.py needs besides runexp (ninja
# dump_batches), and the timing of single kernels (ninja bench_kernels).
add_executable(dump_batches EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/bench/dump_batches.cc)
target_link_libraries(dump_batches PRIVATE plugins)

add_executable(bench_kernels EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/bench/kernels_bench.cc)
target_link_libraries(bench_kernels PRIVATE core_check)

# Rates of reading flat tokens (ninja bench_flat_tokens), which tests/bench/flat_tokens.py compares.
add_executable(bench_flat_tokens EXCLUDE_FROM_ALL
               ${CMAKE_SOURCE_DIR}/tests/bench/flat_tokens_bench.cc)
target_link_libraries(bench_flat_tokens PRIVATE inputs)

# Rates of collectives (ninja bench_collectives).
add_executable(bench_collectives EXCLUDE_FROM_ALL
               ${CMAKE_SOURCE_DIR}/tests/bench/collectives_bench.cc)
target_link_libraries(bench_collectives PRIVATE tasks)

# Speed and ids of tokenizers (ninja bench_tokenizers), for compare_tokenizers.py.
add_executable(bench_tokenizers EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/bench/tokenizers_bench.cc)
target_link_libraries(bench_tokenizers PRIVATE inputs Threads::Threads)

# The rate of batches from shards of text (ninja bench_streaming).
add_executable(bench_streaming EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/bench/streaming_bench.cc)
target_link_libraries(bench_streaming PRIVATE inputs)

# Speed of sampling tokens (ninja bench_sampler).
add_executable(bench_sampler EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/bench/sampler_bench.cc)
target_link_libraries(bench_sampler PRIVATE tasks)

# Decoding with a cache, for tests/bench/decode.py (ninja decode_bench).
add_executable(decode_bench EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/bench/decode_bench.cc)
target_link_libraries(decode_bench PRIVATE plugins)

# Rates of matrix products (ninja bench_matrix_product).
add_executable(bench_matrix_product EXCLUDE_FROM_ALL
               ${CMAKE_SOURCE_DIR}/tests/bench/matrix_product_bench.cc)
target_link_libraries(bench_matrix_product PRIVATE core_devices)

# One write or read of a checkpoint (ninja bench_checkpoint), for tests/bench/checkpoint.py.
add_executable(bench_checkpoint EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/bench/checkpoint_bench.cc)
target_link_libraries(bench_checkpoint PRIVATE core_runtime)

# Reads and writes of an object (ninja bench_object_store), for tests/bench/object_store.py.
add_executable(bench_object_store EXCLUDE_FROM_ALL
               ${CMAKE_SOURCE_DIR}/tests/bench/object_store_bench.cc)
target_link_libraries(bench_object_store PRIVATE core_io)
