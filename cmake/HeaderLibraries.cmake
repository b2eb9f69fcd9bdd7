# The libraries that work as headers alone, without files compiled for the target: Debian's lie in
# /usr/include, where its cross compilers look as well. GoogleTest is built from its sources.

function(header_library name)
  add_library(${name} INTERFACE IMPORTED)
  target_compile_definitions(${name} INTERFACE ${ARGN})
endfunction()
header_library(fmt::fmt FMT_HEADER_ONLY)
header_library(spdlog::spdlog FMT_HEADER_ONLY SPDLOG_FMT_EXTERNAL)
header_library(nlohmann_json::nlohmann_json)

if(AERIE_TESTS)
  set(INSTALL_GTEST OFF)
  add_subdirectory(/usr/src/googletest "${CMAKE_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL)
endif()
