#include "train/run/run_folder.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/files.h"
#include "format/json.h"
#include "format/output_file.h"

namespace aerie::train {
namespace {

namespace fs = std::filesystem;

Json to_json(const RunConfig& config) {
  Json fixed = Json::object(), free = Json::object();
  for (const auto& [name, value] : config.fixed) fixed[name] = value;
  for (const auto& [name, value] : config.free) free[name] = value;
  return {{"method", config.method}, {"options", fixed}, {"other_options", free}};
}

// As texts, or as the numbers that both spell.
bool is_same(std::string_view a, std::string_view b) {
  const auto number = [](std::string_view text) -> std::optional<double> {
    double value = 0.0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
  };
  return a == b || (number(a) && number(a) == number(b));
}

// The first difference of what a result depends on, for people; empty: none.
Expected<std::string> difference(const JsonObject& there, const RunConfig& now) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view method, there.string("method"));
  if (method != now.method) {
    return fmt::format("it trains {}, not {}", method, now.method);
  }
  AERIE_ASSIGN_OR_RETURN(const JsonObject options, there.object("options"));
  for (const auto& [name, value] : now.fixed) {
    AERIE_ASSIGN_OR_RETURN(const std::string_view old, options.string(name, ""));
    if (!is_same(old, value)) {
      return fmt::format("{} is {} there and {} now", name, old.empty() ? "not given" : old,
                         value.empty() ? "not given" : value);
    }
  }
  for (const auto& [name, value] : options.json().items()) {
    bool known = false;
    for (const auto& entry : now.fixed) known = known || entry.first == name;
    if (!known) return fmt::format("{} is {} there and not given now", name, value.dump());
  }
  return std::string();
}

}  // namespace

Status claim_run(const std::string& folder, const RunConfig& config) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return system_error(folder, "the folder cannot be made", error.value());
  const std::string path = folder + "/config.json";
  if (fs::exists(path, error)) {
    AERIE_ASSIGN_OR_RETURN(const Json json, read_json(path));
    AERIE_ASSIGN_OR_RETURN(const JsonObject there, JsonObject::view(json, path));
    AERIE_ASSIGN_OR_RETURN(const std::string differs, difference(there, config));
    if (!differs.empty()) {
      return {StatusCode::kInvalidArgument,
              fmt::format("{}: there is a run already, and it is another: {}; give its options to "
                          "go on with it, or another folder",
                          folder, differs)};
    }
  } else if (!fs::is_empty(folder, error) || error) {
    return {StatusCode::kInvalidArgument,
            folder + ": the folder holds files, but no config.json of a run; give another one"};
  }
  return write_file(path, to_json(config).dump(2) + "\n");
}

Status replace_folder(const std::string& path,
                      const std::function<Status(const std::string& folder)>& write) {
  const std::string next = path + ".new", old = path + ".old";
  std::error_code error;
  fs::remove_all(next, error);
  fs::create_directories(next, error);
  if (error) return system_error(next, "the folder cannot be made", error.value());
  if (const Status written = write(next); !written.ok()) {
    fs::remove_all(next, error);
    return written;
  }
  fs::remove_all(old, error);
  if (fs::exists(path, error)) fs::rename(path, old, error);
  if (!error) fs::rename(next, path, error);
  if (error) return system_error(path, "the folder cannot be replaced", error.value());
  fs::remove_all(old, error);
  return {};
}

Status recover_folder(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error) && fs::exists(path + ".old", error)) {
    fs::rename(path + ".old", path, error);
    if (error) return system_error(path, "the folder cannot be restored", error.value());
  }
  fs::remove_all(path + ".new", error);
  return {};
}

}  // namespace aerie::train
