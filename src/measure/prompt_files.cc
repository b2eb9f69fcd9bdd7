#include "measure/prompt_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "hub/hub_name.h"
#include "hub/locate.h"

namespace aerie::measure {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConversion =
    "import json, sys, pyarrow.parquet as p; f = open(sys.argv[2], 'w'); "
    "[print(json.dumps(r, default=str), file=f) "
    "for b in p.ParquetFile(sys.argv[1]).iter_batches() for r in b.to_pylist()]";

// Whether python3 did it.
bool convert_parquet(const std::string& from, const std::string& to) {
  const char* const words[] = {"python3", "-c", kConversion, from.c_str(), to.c_str(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int error =
      posix_spawnp(&child, words[0], &actions, nullptr, const_cast<char* const*>(words), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return false;
  int status = 0;
  return retried([&] { return waitpid(child, &status, 0); }) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

std::vector<std::string> files_below(const std::string& folder, std::string_view ending) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; at != end; at.increment(error)) {
    if (error) break;
    if (at->path().native().ends_with(ending)) files.push_back(at->path());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

Expected<PromptFiles> PromptFiles::locate(const std::vector<std::string>& names) {
  PromptFiles files;
  for (const std::string& name : names) {
    const bool is_dataset = !is_there(name) && parse_hub_name(name).has_value();
    AERIE_RETURN_IF_ERROR(is_dataset ? files.add_dataset(name) : files.add(name));
  }
  return files;
}

PromptFiles::~PromptFiles() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

PromptFiles::PromptFiles(PromptFiles&& other) noexcept
    : paths_(std::move(other.paths_)), folder_(std::exchange(other.folder_, {})) {}

Status PromptFiles::add(const std::string& path) {
  if (path.ends_with(".parquet")) return add_parquet(path);
  paths_.push_back(path);
  return {};
}

Status PromptFiles::add_dataset(const std::string& name) {
  Status status;
  for (const std::string ending : {".jsonl", ".parquet"}) {
    const auto folder = locate_dataset(name, std::span(&ending, 1));
    if (!folder.ok()) {
      // What is said of the first is what is said of the dataset.
      if (status.ok()) status = folder.status();
      if (folder.status().code() != StatusCode::kNotFound) return folder.status();
      continue;
    }
    for (const std::string& file : files_below(*folder, ending)) AERIE_RETURN_IF_ERROR(add(file));
    return {};
  }
  return status.with_context("neither JSON lines nor Parquet");
}

Status PromptFiles::add_parquet(const std::string& path) {
  if (folder_.empty()) {
    std::string made = (fs::temp_directory_path() / "aerie-prompts-XXXXXX").string();
    if (mkdtemp(made.data()) == nullptr) return system_error(made, "cannot be made", errno);
    folder_ = std::move(made);
  }
  const std::string lines = fmt::format("{}/{}.jsonl", folder_, fs::path(path).stem().string());
  if (convert_parquet(path, lines)) {
    paths_.push_back(lines);
    return {};
  }
  return not_supported(
      "{0}: Parquet is read by Python's pyarrow, which is not at hand or cannot read it: install "
      "it (python3 -m pip install pyarrow), or convert the file where it is: python3 -c \"{1}\" "
      "{0} PROMPTS.jsonl",
      path, kConversion);
}

}  // namespace aerie::measure
