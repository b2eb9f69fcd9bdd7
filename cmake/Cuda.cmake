# libaerie_cuda.so, which the program opens for --device cuda:N (src/kernels/device/load_cuda.h), with CUDA's runtime
# inside, so that a machine needs the driver alone.
# CMake's own CUDA language is not used: it asks for a whole toolkit, where four packages of PyPI have all that is needed
# (scripts/cuda/fetch_nvcc.sh).
option(AERIE_CUDA "Build what runs models on NVIDIA's GPUs (needs nvcc; docs/cuda.md)" OFF)
set(AERIE_CUDA_ARCHITECTURES "90;100" CACHE STRING
  "Of GPUs that libaerie_cuda.so has code for; newer ones compile the last one's when they open it")
set(AERIE_NVCC_FLAGS "" CACHE STRING "More flags for nvcc, e.g. -lineinfo")

# aerie_device_build_id(output a.h b.h ...): the header device_build_id.h, which names what the program and the library
# are both compiled of by its contents; made again when one of the files changes.
set(AERIE_DEVICE_BUILD_ID "${CMAKE_BINARY_DIR}/generated")
function(aerie_device_build_id output)
  set(header "${AERIE_DEVICE_BUILD_ID}/device_build_id.h")
  set(script "${CMAKE_SOURCE_DIR}/cmake/DeviceBuildId.cmake")
  add_custom_command(OUTPUT "${header}"
    COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${header}" "-DFILES=${ARGN}" "-DVERSION=${PROJECT_VERSION}" -P "${script}"
    DEPENDS ${ARGN} "${script}"
    COMMENT "Naming the device's code" VERBATIM)
  # clang-tidy reads folders that were never built.
  if(NOT EXISTS "${header}")
    execute_process(COMMAND_ERROR_IS_FATAL ANY
      COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${header}" "-DFILES=${ARGN}" "-DVERSION=${PROJECT_VERSION}" -P "${script}")
  endif()
  set(${output} "${header}" PARENT_SCOPE)
endfunction()

# Sets AERIE_NVCC and AERIE_CUDA_RUNTIME or ends with what to do.
macro(aerie_find_nvcc)
  set(fetched "${CMAKE_SOURCE_DIR}/build/nvcc/nvidia/cu13")
  find_program(AERIE_NVCC nvcc PATHS /usr/local/cuda/bin "${fetched}/bin" DOC "CUDA's compiler")
  if(NOT AERIE_NVCC)
    message(FATAL_ERROR "AERIE_CUDA needs CUDA's compiler, and there is no nvcc: scripts/cuda/fetch_nvcc.sh brings it, "
                        "-DAERIE_NVCC=/path/to/nvcc names one, -DAERIE_CUDA=OFF builds without.")
  endif()
  execute_process(COMMAND "${AERIE_NVCC}" --version OUTPUT_VARIABLE version RESULT_VARIABLE failed)
  string(REGEX MATCH "release ([0-9.]+)" version "${version}")
  set(version "${CMAKE_MATCH_1}")
  if(failed OR version VERSION_LESS 12.8)
    message(FATAL_ERROR "AERIE_CUDA needs nvcc 12.8 or newer; ${AERIE_NVCC} is ${version}. "
                        "scripts/cuda/fetch_nvcc.sh brings one, -DAERIE_NVCC=/path/to/nvcc names another.")
  endif()
  get_filename_component(toolkit "${AERIE_NVCC}" REALPATH)
  get_filename_component(toolkit "${toolkit}/../.." ABSOLUTE)
  find_library(AERIE_CUDART cudart_static HINTS "${toolkit}" PATH_SUFFIXES lib64 lib "targets/${CMAKE_SYSTEM_PROCESSOR}-linux/lib"
    DOC "CUDA's runtime as an archive")
  if(NOT AERIE_CUDART)
    message(FATAL_ERROR "AERIE_CUDA needs CUDA's runtime: there is no libcudart_static.a in ${toolkit}; "
                        "-DAERIE_CUDART=/path/to/it names it.")
  endif()
  set(AERIE_CUDA_RUNTIME "${AERIE_CUDART}" Threads::Threads ${CMAKE_DL_LIBS} rt)
endmacro()

# aerie_cuda_objects(output a.cc b.cu ...): these files as CUDA's compiler takes them.
function(aerie_cuda_objects output)
  set(code "")
  foreach(architecture IN LISTS AERIE_CUDA_ARCHITECTURES)
    # Hopper's groups of warps (simt::kHasGroups) are not in sm_90, which no other GPU runs either.
    string(REGEX REPLACE "^90$" "90a" own "${architecture}")
    list(APPEND code -gencode "arch=compute_${own},code=sm_${own}")
  endforeach()
  # Of the last one also what a newer GPU's driver compiles.
  list(GET AERIE_CUDA_ARCHITECTURES -1 last)
  list(APPEND code -gencode "arch=compute_${last},code=compute_${last}")
  separate_arguments(more UNIX_COMMAND "${AERIE_NVCC_FLAGS}")
  set(objects "")
  foreach(source IN LISTS ARGN)
    get_filename_component(name "${source}" NAME)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/aerie_cuda/${name}.o")
    # Only what reads the name of the code is compiled again when other code changes.
    set(needed "${source}")
    file(STRINGS "${source}" reads_name REGEX "<device_build_id[.]h>")
    if(reads_name)
      list(APPEND needed "${AERIE_DEVICE_BUILD_ID}/device_build_id.h")
    endif()
    # No fused multiply-add that the code does not spell, as everywhere.
    add_custom_command(OUTPUT "${object}"
      COMMAND "${AERIE_NVCC}" -x cu -c "${source}" -o "${object}" -MD -MF "${object}.d" -ccbin "${CMAKE_CXX_COMPILER}"
              -std=c++20 -O3 -DNDEBUG -fmad=false ${code} -Wno-deprecated-gpu-targets --threads 2 ${more}
              -Xcompiler=-fPIC,-fvisibility=hidden,-ffp-contract=off,-fno-math-errno
              -I "${CMAKE_SOURCE_DIR}/src" -I "${CMAKE_SOURCE_DIR}/include" -I "${AERIE_DEVICE_BUILD_ID}"
      DEPENDS ${needed} DEPFILE "${object}.d"
      COMMENT "Compiling ${name} for GPUs (${AERIE_CUDA_ARCHITECTURES})" VERBATIM)
    list(APPEND objects "${object}")
  endforeach()
  set(${output} "${objects}" PARENT_SCOPE)
endfunction()

# aerie_cuda_library(a.cc b.cu ...): the target aerie_cuda.
function(aerie_cuda_library)
  aerie_find_nvcc()
  message(STATUS "CUDA ${version}: ${AERIE_NVCC}, for ${AERIE_CUDA_ARCHITECTURES}")
  aerie_cuda_objects(objects ${ARGN})
  add_library(aerie_cuda MODULE ${objects})
  # What it is made of stays hidden, the runtime's functions and parts of the standard library, too.
  set(map "${CMAKE_SOURCE_DIR}/cmake/libaerie_cuda.map")
  set_target_properties(aerie_cuda PROPERTIES
    LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin" LINK_DEPENDS "${map}")
  target_link_options(aerie_cuda PRIVATE "LINKER:--version-script=${map}" LINKER:--no-undefined)
  target_link_libraries(aerie_cuda PRIVATE ${AERIE_CUDA_RUNTIME})
  # A part of its own: the packages of the program do without.
  install(TARGETS aerie_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cuda)
endfunction()

# aerie_cuda_program(name a.cu ...): a program that needs nothing else of the project.
function(aerie_cuda_program name)
  aerie_find_nvcc()
  aerie_cuda_objects(objects ${ARGN})
  add_executable(${name} ${objects})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${name} PRIVATE ${AERIE_CUDA_RUNTIME})
endfunction()
