#include "tools/train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace aerie {

Status run_train(char** argv) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / "aerie-train").string();
  if (!error) execv(program.c_str(), argv);
  const int reason = error ? error.value() : errno;
  return {
      reason == ENOENT ? StatusCode::kNotFound : StatusCode::kInternal,
      fmt::format("{} cannot be run: {}; `scripts/install_deps.sh --train`, `scripts/configure.sh "
                  "release train` and `ninja -C build/release aerie-train` make it",
                  program, std::generic_category().message(reason))};
}

}  // namespace aerie
