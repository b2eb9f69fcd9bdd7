# cmake -DOUTPUT=x.h "-DFILES=a;b" -DVERSION=1.2.3 -P DeviceBuildId.cmake: a header with a name for what the program and
# libaerie_cuda.so have to agree on: the contents of these files.
set(sums "${VERSION}")
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME)
  file(SHA256 "${file}" sum)
  string(APPEND sums " ${name} ${sum}")
endforeach()
string(SHA256 id "${sums}")
string(SUBSTRING "${id}" 0 16 id)
set(text "#pragma once\n\nnamespace aerie::device {\n\n")
string(APPEND text "inline constexpr const char* kBuildId = \"${VERSION}-${id}\";\n\n}  // namespace aerie::device\n")
file(WRITE "${OUTPUT}" "${text}")
