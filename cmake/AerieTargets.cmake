# The flags that every target shares, and the three kinds of target that the project has.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# The sanitizers' own checks cost minutes of compile time at -O2; asserts and the library's stay on.
set(CMAKE_C_FLAGS_SANITIZE "-O1 -g1")
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1 -D_GLIBCXX_ASSERTIONS")

# Several source files a compilation: most of the time goes into headers, which they then share.
option(AERIE_UNITY "Compile the files of a library in batches" ON)

# What is compiled in one clone serves another: the compiler is told of paths below the source folder
# relative to it.
find_program(AERIE_CCACHE ccache)
if(AERIE_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER "${AERIE_CCACHE}")
  # Where a path has a space, ccache leaves it whole in what it says an object depends on, and another
  # clone that got the object would look for changes in this one's files.
  set(cache_of_its_own)
  if(CMAKE_SOURCE_DIR MATCHES " ")
    string(SHA1 clone "${CMAKE_SOURCE_DIR}")
    set(cache_of_its_own "CCACHE_NAMESPACE=${clone}")
  endif()
  # The sloppiness is what ccache asks for before it takes files with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1 ${cache_of_its_own} "${AERIE_CCACHE}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endif()
add_compile_options("-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")
# GCC as a cross compiler looks for a linker of its own by that name.
find_program(AERIE_LLD ld.lld)
if(AERIE_LLD AND NOT CMAKE_CROSSCOMPILING)
  add_link_options(-fuse-ld=lld)
endif()

add_library(aerie_flags INTERFACE)
target_include_directories(aerie_flags INTERFACE "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/include")
# A fused multiply-add that the compiler chose would give other bits than the one the code spells.
target_compile_options(aerie_flags INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror
  -ffp-contract=off -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # libstdc++ 12 uses what it deprecates in std::stable_sort.
  target_compile_options(aerie_flags INTERFACE -Wno-deprecated-declarations)
endif()
if(AERIE_SANITIZE)
  target_compile_options(aerie_flags INTERFACE
    -fsanitize=${AERIE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(AERIE_SANITIZE MATCHES "undefined")
    # A third of the time that compiling takes, for what AddressSanitizer sees as well or -O1 cannot.
    target_compile_options(aerie_flags INTERFACE -fno-sanitize=null,object-size,vptr)
  endif()
  target_link_options(aerie_flags INTERFACE -fsanitize=${AERIE_SANITIZE})
  if(AERIE_FUZZ)
    target_compile_options(aerie_flags INTERFACE -fsanitize=fuzzer-no-link)
    target_link_options(aerie_flags INTERFACE -fsanitize=fuzzer-no-link)
  endif()
endif()

# aerie_unity(target [APART a.cc ...]): the files in batches of eight. Those stay apart that have flags of
# their own, and those named here, whose local names others of the folder have as well.
function(aerie_unity target)
  cmake_parse_arguments(ARG "" "" "APART" ${ARGN})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${AERIE_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# aerie_library(name SOURCES a.cc b.cc [APART a.cc ...] [DEPS aerie_base fmt::fmt ...]): static library
# aerie_<name>.
function(aerie_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;APART;DEPS" ${ARGN})
  add_library(aerie_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(aerie_${name} PUBLIC aerie_flags ${ARG_DEPS})
  aerie_unity(aerie_${name} APART ${ARG_APART})
endfunction()

# A third less of the time that a test takes to compile; what it tests is optimized in its library.
set(test_optimization $<$<CONFIG:Release>:-O1>)

# aerie_test_headers(name HEADERS <x.h> ... [DEPS aerie_x]): GoogleTest's headers and these, compiled
# once for all tests that name them; half of the time that a test takes to compile goes into them. It
# is a program since that is what the tests are, and the flags have to be the same.
function(aerie_test_headers name)
  cmake_parse_arguments(ARG "" "" "HEADERS;DEPS" ${ARGN})
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}.cc")
  file(CONFIGURE OUTPUT "${source}" CONTENT "int main() {}\n")
  add_executable(${name} "${source}")
  target_link_libraries(${name} PRIVATE aerie_flags ${ARG_DEPS} GTest::gtest GTest::gmock)
  target_compile_options(${name} PRIVATE ${test_optimization})
  target_precompile_headers(${name} PRIVATE <gtest/gtest.h> <gmock/gmock.h> ${ARG_HEADERS})
endfunction()

# aerie_test(name SOURCES a_test.cc [DEPS aerie_x] [LABELS real] [TIMEOUT s] [SHARDS n] [HEADERS x]
#            [ALONE] [APART a_test.cc ...]):
# program test_<name>, labelled with its folder in tests/, too; with shards its tests are dealt out to
# <name>_1, <name>_2, ... which may run at once. HEADERS is a target of aerie_test_headers, test_headers
# if none is named. ALONE is for tests that measure time: nothing else runs beside them. The sources are compiled in
# batches but for those APART; each test's file has a namespace of its name.
# Those that may take longest are started first, lest one runs alone at the end.
# The tests run from the source root, so that paths in them are relative to it.
function(aerie_test name)
  cmake_parse_arguments(ARG "ALONE" "TIMEOUT;SHARDS;HEADERS" "SOURCES;APART;DEPS;LABELS" ${ARGN})
  if(NOT ARG_HEADERS)
    set(ARG_HEADERS test_headers)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(AERIE_SANITIZE)
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  add_executable(test_${name} ${ARG_SOURCES})
  target_include_directories(test_${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_link_libraries(test_${name} PRIVATE aerie_flags ${ARG_DEPS} GTest::gtest GTest::gmock
                                             GTest::gtest_main)
  target_compile_options(test_${name} PRIVATE ${test_optimization})
  target_precompile_headers(test_${name} REUSE_FROM ${ARG_HEADERS})
  aerie_unity(test_${name} APART ${ARG_APART})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 warns without cause within std::string (its bug 105651), and forgets in precompiled
    # headers that it is not to look there.
    target_compile_options(test_${name} PRIVATE
      -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  file(RELATIVE_PATH folder "${CMAKE_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REGEX REPLACE "/.*" "" folder "${folder}")
  if(folder)
    list(APPEND ARG_LABELS "${folder}")
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    set(test ${name}_${shard})
    if(ARG_SHARDS EQUAL 1)
      set(test ${name})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${test} COMMAND test_${name} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
    set(environment GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${index})
    if(CMAKE_CROSSCOMPILING_EMULATOR)
      list(APPEND environment AERIE_EMULATED=1) # tests/testing/sweeps.h
    endif()
    set_tests_properties(${test} PROPERTIES
      TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" RUN_SERIAL ${ARG_ALONE}
      COST ${ARG_TIMEOUT}
      ENVIRONMENT "${environment}")
  endforeach()
endfunction()

# aerie_fuzzer(name SOURCES a_fuzz.cc [DEPS aerie_x]): libFuzzer program fuzz_<name>, only with
# AERIE_FUZZ.
function(aerie_fuzzer name)
  if(NOT AERIE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(fuzz_${name} ${ARG_SOURCES})
  target_include_directories(fuzz_${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_link_libraries(fuzz_${name} PRIVATE aerie_flags ${ARG_DEPS})
  target_compile_definitions(fuzz_${name} PRIVATE AERIE_FUZZ_PROGRAM)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
endfunction()

# aerie_script_test(name [SCRIPT run.sh] [ARGS ...] [LABELS real] [TIMEOUT s] [COST n] [ALONE]): the folder's script, told the build
# folder, as one test, which is skipped where the script exits with 77. ALONE: nothing else runs beside it.
function(aerie_script_test name)
  cmake_parse_arguments(ARG "ALONE" "SCRIPT;TIMEOUT;COST" "ARGS;LABELS" ${ARGN})
  if(NOT ARG_SCRIPT)
    set(ARG_SCRIPT run.sh)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS real)
  endif()
  add_test(NAME ${name}
    COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SCRIPT}" "${CMAKE_BINARY_DIR}" ${ARG_ARGS}
    WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES
    LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_ALONE} SKIP_RETURN_CODE 77)
  if(ARG_COST)
    set_tests_properties(${name} PROPERTIES COST ${ARG_COST})
  endif()
endfunction()
