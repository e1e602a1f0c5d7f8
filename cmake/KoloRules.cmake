# The house rules of compilation, and kolo_add_room(): one static library per folder.
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Checks stay on, and sums are the same on every machine: no fused multiply-add behind our back.
set(CMAKE_CXX_FLAGS_RELEASE "-O3")
set(CMAKE_C_FLAGS_RELEASE "-O3")

add_library(kolo_rules INTERFACE)
target_compile_options(kolo_rules INTERFACE -Wall -Wextra -ffp-contract=off
  # g++ 12 reports string concatenation that is fine (its bug 105651).
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
  $<$<COMPILE_LANGUAGE:CXX>:-Wconversion -Wshadow -Wnon-virtual-dtor>
  $<$<BOOL:${KOLO_WERROR}>:-Werror>)
if(KOLO_SANITIZE)
  string(REPLACE "+" "," sanitizers "${KOLO_SANITIZE}")
  target_compile_options(kolo_rules INTERFACE -fsanitize=${sanitizers} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(kolo_rules INTERFACE -fsanitize=${sanitizers})
  if(KOLO_SANITIZE MATCHES thread)  # which does not know Asio's fences; its locks suffice
    target_compile_definitions(kolo_rules INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()
if(KOLO_FUZZ)
  target_compile_options(kolo_rules INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(kolo_rules INTERFACE -fprofile-instr-generate)  # tests/fuzz counts lines
endif()

# kolo_add_room(name SOURCES ... [DEPS ...] [PRIVATE_DEPS ...])
function(kolo_add_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(kolo_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(kolo_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(kolo_${name} PUBLIC ${ROOM_DEPS} Threads::Threads
    PRIVATE kolo_rules ${ROOM_PRIVATE_DEPS})
  set_target_properties(kolo_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# kolo_add_test_target(name folder ...): a target that builds every program of these test folders.
function(kolo_add_test_target name)
  add_custom_target(${name})
  while(ARGN)
    list(POP_FRONT ARGN folder)
    get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${targets})
      get_target_property(type ${target} TYPE)
      if(type STREQUAL "EXECUTABLE")
        add_dependencies(${name} ${target})
      endif()
    endforeach()
    get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
    list(APPEND ARGN ${folders})
  endwhile()
endfunction()
