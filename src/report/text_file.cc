#include "report/text_file.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/errors.h"

namespace aerie {
namespace {

constexpr std::uintmax_t kMostBytes = std::uintmax_t{256} << 20;

}  // namespace

Expected<std::string> read_text_file(const std::string& path, const char* flag) {
  // Of a folder, which would open and then throw when it is read, the size is an error.
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    return not_found("{} {}: the file cannot be read", flag, path);
  }
  if (size > kMostBytes) {
    return invalid_argument("{} {}: {} MiB is more than the {} MiB that are read", flag, path,
                            size >> 20, kMostBytes >> 20);
  }
  std::string text(static_cast<size_t>(size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

Expected<std::string> read_key_file(const std::string& path, const char* flag) {
  AERIE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, flag));
  constexpr const char* kSpace = " \t\r\n";
  const size_t from = text.find_first_not_of(kSpace);
  if (from == std::string::npos) {
    return invalid_argument("{} {}: there is no key in it", flag, path);
  }
  return text.substr(from, text.find_last_not_of(kSpace) + 1 - from);
}

}  // namespace aerie
