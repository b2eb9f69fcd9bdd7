#include "tools/train.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/files.h"

namespace aerie {
namespace {

Expected<std::string> program_path() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return system_error("/proc/self/exe", "cannot be read", error.value());
  return (self.parent_path() / "aerie-train").string();
}

// What it writes to standard output; empty where it cannot be run.
std::string output_of(const std::string& program, const char* argument) {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const char* const words[] = {program.c_str(), argument, nullptr};
  pid_t child = -1;
  const int error = posix_spawn(&child, program.c_str(), &actions, nullptr,
                                const_cast<char* const*>(words), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  std::array<char, 1 << 14> bytes;
  for (ssize_t n = 0; error == 0; output.append(bytes.data(), static_cast<size_t>(n))) {
    n = retried([&] { return read(ends[0], bytes.data(), bytes.size()); });
    if (n <= 0) break;
  }
  close(ends[0]);
  int status = 0;
  if (error != 0 || retried([&] { return waitpid(child, &status, 0); }) != child) return "";
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? output : "";
}

// One of `commands`; nullptr if there is none of that name.
CommandWords* find(std::vector<CommandWords>& commands, const std::string& name) {
  for (CommandWords& one : commands) {
    if (one.name() == name) return &one;
  }
  return nullptr;
}

void take(CommandWords& from, CommandWords& to) {
  to.options = std::move(from.options);
  to.commands = std::move(from.commands);
}

}  // namespace

Status run_train(char** argv) {
  AERIE_ASSIGN_OR_RETURN(const std::string program, program_path());
  execv(program.c_str(), argv);
  const int reason = errno;
  return {
      reason == ENOENT ? StatusCode::kNotFound : StatusCode::kInternal,
      fmt::format("{} cannot be run: {}; `scripts/install_deps.sh --train`, `scripts/configure.sh "
                  "release train` and `ninja -C build/release aerie-train` make it",
                  program, std::generic_category().message(reason))};
}

void add_train_words(CommandWords& words) {
  const auto program = program_path();
  if (!program.ok()) return;
  auto told = parse_command_words(output_of(*program, "--command-words"), words.path + " train");
  if (!told.ok()) return;
  // `aerie speedup` is not a part of `aerie train`, but of that program.
  CommandWords* const speedup = find(words.commands, "speedup");
  if (CommandWords* const own = find(told->commands, "speedup"); own != nullptr) {
    if (speedup != nullptr) take(*own, *speedup);
    std::erase_if(told->commands, [](const CommandWords& one) { return one.name() == "speedup"; });
  }
  if (CommandWords* const train = find(words.commands, "train")) take(*told, *train);
}

}  // namespace aerie
