#include "tools/serve/model_set.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "engine/opened_model.h"
#include "format/input_file.h"
#include "format/json.h"
#include "hub/hub_name.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

// Of the server as a whole, and not of a model.
constexpr std::array kServerFlags = {
    "models",
    "models-dir",
    "models-max",
    "models-memory-mib",
    "config",
    "host",
    "port",
    "tls-cert",
    "tls-key",
    "cors-origin",
    "api-key-file",
    "api-key",
    "admin-key-file",
    "hash-key",
    "tenant-by",
    "max-connections",
    "max-body-mib",
    "max-unsent-mib",
    "read-seconds",
    "idle-seconds",
    "write-seconds",
    "drain-seconds",
    "no-log-requests",
    "record",
    "record-share",
    "record-mib",
    "record-texts",
    "learn",
    "learn-mib",
    "audit-log",
    "trust-proxy",
    "share-learning",
    "scheduling-policy",
};

bool is_of_server(const std::string& flag) {
  return std::ranges::find(kServerFlags, flag) != kServerFlags.end();
}

std::string long_name(const CLI::Option& option) {
  return option.get_lnames().empty() ? std::string() : option.get_lnames().front();
}

// As it would stand on a command line.
Expected<std::vector<std::string>> words_of(const Json& value) {
  if (value.is_string()) return std::vector<std::string>{value.get<std::string>()};
  if (value.is_number() || value.is_boolean()) return std::vector<std::string>{value.dump()};
  if (value.is_object()) return std::vector<std::string>{value.dump()};  // a flag that takes JSON
  std::vector<std::string> words;
  if (!value.is_array()) return invalid_argument("is no text, number, truth or list of them");
  for (const Json& one : value) {
    if (one.is_array()) return invalid_argument("is a list of lists");
    AERIE_ASSIGN_OR_RETURN(std::vector<std::string> more, words_of(one));
    words.insert(words.end(), more.begin(), more.end());
  }
  return words;
}

// The flags of a server of one model.
class ModelFlags {
 public:
  ModelFlags() : read_(add_serve_options(app_)) {}

  // The library reports by exceptions, as it does on the command line.
  Status set(const std::string& flag, const std::vector<std::string>& words) {
    CLI::Option* option = app_.get_option_no_throw("--" + flag);
    if (option == nullptr) return invalid_argument("there is no flag '{}'", flag);
    option->clear();
    if (option->get_expected_max() == 0 && words == std::vector<std::string>{"false"}) return {};
    try {
      option->add_result(words);
      option->run_callback();
    } catch (const CLI::Error& error) {
      return invalid_argument("{}", error.what());
    }
    return {};
  }

  // All that was said there of a model.
  Status set_all(const CLI::App& given) {
    for (const CLI::Option* option : given.get_options()) {
      const std::string name = long_name(*option);
      const bool is_here = app_.get_option_no_throw("--" + name) != nullptr;
      if (option->count() == 0 || !is_here || is_of_server(name) || name == "model") continue;
      AERIE_RETURN_IF_ERROR(set(name, option->results()));
    }
    return {};
  }

  Expected<ServeOptions> read() { return read_(); }

 private:
  CLI::App app_;
  std::function<Expected<ServeOptions>()> read_;
};

// A path that is not there would be found out when somebody asks for it.
Status check_model(const std::string& model) {
  std::error_code ignored;
  if (fs::exists(model, ignored) || parse_hub_name(model)) return {};
  return not_found("{}: there is no such file", model);
}

class ModelSet {
 public:
  explicit ModelSet(const CLI::App& app) : app_(app) {}

  Status add(const std::string& name, const Json& flags) {
    if (name.empty()) return invalid_argument("a model has no name");
    if (!flags.is_object()) return invalid_argument("{}: give an object of flags", name);
    ModelFlags own;
    AERIE_RETURN_IF_ERROR(own.set_all(app_));
    for (const auto& [flag, value] : flags.items()) {
      if (is_of_server(flag)) {
        return invalid_argument("{}: '{}' is for the whole server: give it on the command line",
                                name, flag);
      }
      auto words = words_of(value);
      if (!words.ok()) return invalid_argument("{}: '{}' {}", name, flag, words.status().message());
      AERIE_RETURN_IF_ERROR(own.set(flag, *words).with_context(name));
    }
    auto options = own.read();
    if (!options.ok()) return options.status().with_context(name);
    AERIE_RETURN_IF_ERROR(check_model(options->engine.model).with_context(name));
    std::vector<std::string>& names = options->server.api.model_names;
    names.insert(names.begin(), name);
    for (const std::string& one : names) {
      if (!names_.insert(one).second) return invalid_argument("two models are called {}", one);
    }
    models_.push_back(std::move(*options));
    if (models_.size() > kMostModels) return invalid_argument("more than {} models", kMostModels);
    return {};
  }

  std::vector<ServeOptions> take() { return std::move(models_); }

 private:
  const CLI::App& app_;
  std::set<std::string> names_;
  std::vector<ServeOptions> models_;
};

Status add_list(const std::string& path, ModelSet& out) {
  AERIE_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  AERIE_ASSIGN_OR_RETURN(const Json list, parse_json(text, "the file"));
  if (!list.is_object() || list.empty()) {
    return invalid_argument("give an object with an object of flags for each name");
  }
  for (const auto& [name, flags] : list.items()) AERIE_RETURN_IF_ERROR(out.add(name, flags));
  return {};
}

// One that a split model or a folder begins with.
bool is_model(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return fs::exists(path / "config.json", ignored);
  const std::string name = path.filename().string();
  const bool is_later_part =
      name.find("-of-") != std::string::npos && name.find("-00001-of-") == std::string::npos;
  return path.extension() == ".gguf" && !name.starts_with("mmproj") && !is_later_part;
}

Status add_folder(const std::string& folder, ModelSet& out) {
  std::error_code error;
  std::map<std::string, std::string> found;  // in the order of their names
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (is_model(entry.path())) found[model_name(entry.path().string())] = entry.path().string();
  }
  if (error) return not_found("it cannot be read: {}", error.message());
  if (found.empty()) return not_found("there is no GGUF file and no model's folder in it");
  for (const auto& [name, path] : found) AERIE_RETURN_IF_ERROR(out.add(name, {{"model", path}}));
  return {};
}

}  // namespace

Expected<std::vector<ServeOptions>> read_model_set(const CLI::App& app,
                                                   const std::vector<std::string>& models,
                                                   const ModelSetOptions& set) {
  const int ways =
      (models.empty() ? 0 : 1) + (set.list.empty() ? 0 : 1) + (set.folder.empty() ? 0 : 1);
  if (ways > 1) return invalid_argument("give one of MODEL, --models and --models-dir");
  ModelSet out(app);
  if (!set.list.empty()) {
    AERIE_RETURN_IF_ERROR(add_list(set.list, out).with_context("--models " + set.list));
  } else if (!set.folder.empty()) {
    AERIE_RETURN_IF_ERROR(add_folder(set.folder, out).with_context("--models-dir " + set.folder));
  } else if (models.size() > 1) {
    for (const std::string& model : models) {
      AERIE_RETURN_IF_ERROR(out.add(model_name(model), {{"model", model}}).with_context("--model"));
    }
  }
  return out.take();
}

}  // namespace aerie
