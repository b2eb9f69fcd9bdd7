# LibTorch for train/, as the target aerie_torch: Debian's libtorch-dev (1.13), or the one inside an
# installed PyTorch, whose prefix then is AERIE_TORCH (the folder that has include/ and lib/):
#   cmake ... -DAERIE_TORCH=$(python3 -c 'import torch; print(torch.__path__[0])')
# Torch's own CMake package is not used: it asks for compilers and libraries that only building
# Torch itself needs.
set(AERIE_TORCH "" CACHE PATH "Folder of a LibTorch other than the system's")
set(hints "")
if(AERIE_TORCH)
  set(hints HINTS "${AERIE_TORCH}" NO_DEFAULT_PATH)
endif()
find_path(AERIE_TORCH_INCLUDE ATen/ATen.h ${hints} PATH_SUFFIXES include)
find_path(AERIE_TORCH_API torch/torch.h
  HINTS "${AERIE_TORCH_INCLUDE}/torch/csrc/api/include" NO_DEFAULT_PATH)
find_library(AERIE_TORCH_CPU torch_cpu ${hints} PATH_SUFFIXES lib)
find_library(AERIE_TORCH_C10 c10 ${hints} PATH_SUFFIXES lib)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS AERIE_TORCH_CPU AERIE_TORCH_C10 AERIE_TORCH_INCLUDE AERIE_TORCH_API)
mark_as_advanced(AERIE_TORCH_INCLUDE AERIE_TORCH_API AERIE_TORCH_CPU AERIE_TORCH_C10)

if(LibTorch_FOUND AND NOT TARGET aerie_torch)
  add_library(aerie_torch INTERFACE)
  target_include_directories(aerie_torch SYSTEM INTERFACE "${AERIE_TORCH_INCLUDE}"
                                                          "${AERIE_TORCH_API}")
  target_link_libraries(aerie_torch INTERFACE "${AERIE_TORCH_CPU}" "${AERIE_TORCH_C10}")
  # PyTorch brings headers of fmt, of another release than the library that Aerie links: the
  # system's come first.
  if(AERIE_TORCH AND EXISTS "${AERIE_TORCH_INCLUDE}/fmt")
    find_path(AERIE_FMT_INCLUDE fmt/format.h)
    mark_as_advanced(AERIE_FMT_INCLUDE)
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/system_fmt")
    file(CREATE_LINK "${AERIE_FMT_INCLUDE}/fmt" "${CMAKE_BINARY_DIR}/system_fmt/fmt" SYMBOLIC)
    target_include_directories(aerie_torch SYSTEM BEFORE INTERFACE
      "${CMAKE_BINARY_DIR}/system_fmt")
  endif()
endif()
