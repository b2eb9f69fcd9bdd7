// Files that are part of the program: those of page/, and openapi.json. Written by
// cmake/EmbedFiles.cmake.
#pragma once

#include <span>
#include <string_view>

namespace aerie::server {

struct EmbeddedFile {
  std::string_view name;  // without a folder
  std::string_view bytes;
};

std::span<const EmbeddedFile> embedded_files();

}  // namespace aerie::server
