# What one GPU is enough for, on a real one (label gpu) and on the fakes.
kolo_add_test(gpu_one SOURCES
  gpu.cc
  nccl_alone_test.cc
  one_gpu_test.cc
  DEPS kolo kolo_ops kolo_transport ${CMAKE_DL_LIBS} LABELS gpu)
target_include_directories(gpu_one PRIVATE ${PROJECT_SOURCE_DIR}/bindings_c/include)
# Skipped only as a whole: a case that skips must not hide another one's failure.
set_tests_properties(gpu_one PROPERTIES
  SKIP_REGULAR_EXPRESSION "\\[  PASSED  \\] 0 tests\\.\n\\[  SKIPPED")
kolo_run_on_fakes(gpu_one gpu_one_on_fakes)

# Scripts that run programs of several ranks: two ranks on one GPU, and every part of bench/gpu.sh.
set(bin ${CMAKE_BINARY_DIR}/bin)
add_test(NAME gpu_two_ranks COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/two_ranks_one_gpu.sh ${bin})
set_tests_properties(gpu_two_ranks PROPERTIES LABELS gpu TIMEOUT 600 SKIP_RETURN_CODE 77)
set(fakes KOLO_CUDART_PATH=${KOLO_FAKEGPU_DIR}/libcudart.so.13
  KOLO_NCCL_PATH=${KOLO_FAKEGPU_DIR}/libnccl.so.2 FAKEGPU_CENSUS=1)
add_test(NAME gpu_two_ranks_on_fakes
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/two_ranks_one_gpu.sh ${bin})
set_tests_properties(gpu_two_ranks_on_fakes PROPERTIES LABELS multiproc TIMEOUT 600
  RUN_SERIAL ON ENVIRONMENT "${fakes}")
add_test(NAME gpu_bench_on_fakes
  COMMAND ${PROJECT_SOURCE_DIR}/bench/gpu.sh --fakes --bin ${bin})
set_tests_properties(gpu_bench_on_fakes PROPERTIES LABELS bench TIMEOUT 600 RUN_SERIAL ON)
