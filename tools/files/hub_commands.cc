#include "tools/files/hub_commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/standard_streams.h"
#include "format/json.h"
#include "format/text.h"
#include "hub/hub_inventory.h"
#include "hub/hub_settings.h"
#include "hub/locate.h"
#include "model/import/head_file.h"
#include "model/import/hugging_face_file.h"

namespace aerie {
namespace {

constexpr const char* kNameHelp = "ORG/REPO[@REVISION][:QUANT or FILE]";

Expected<HubName> read_name(const std::string& text, const std::string& revision) {
  const std::string whole =
      revision.empty()
          ? text
          : fmt::format("{}@{}{}", text.substr(0, text.find(':')), revision,
                        text.find(':') == text.npos ? "" : text.substr(text.find(':')));
  const std::optional<HubName> name = parse_hub_name(whole);
  if (name) return *name;
  return invalid_argument("{}: this is no name of a model on the hub: give {}", printable(whole),
                          kNameHelp);
}

std::string size_text(int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return bytes < 1'000'000'000 ? fmt::format("{:.1f} MB", size / 1e6)
                               : fmt::format("{:.2f} GB", size / 1e9);
}

Status pull(const std::vector<std::string>& names, const std::string& revision) {
  for (const std::string& text : names) {
    AERIE_ASSIGN_OR_RETURN(const HubName name, read_name(text, revision));
    AERIE_ASSIGN_OR_RETURN(const PulledModel pulled, pull_model(name));
    print_message("{}: {}, of which {} were fetched\n", to_string(name), size_text(pulled.bytes),
                  size_text(pulled.fetched));
    print_output(pulled.path + "\n");
  }
  return {};
}

// What a model is, as far as its files say so.
struct Known {
  std::string family;
  bool is_head = false;
  std::string problem;  // why it cannot be read; empty if it can
};

std::string family_of_folder(const std::string& path) {
  const Expected<Json> config = read_json(path + "/config.json");
  if (!config.ok() || !config->is_object()) return "";
  const auto type = config->find("model_type");
  return type != config->end() && type->is_string() ? type->get<std::string>() : "";
}

Known look_at(const CachedModel& model) {
  Known known;
  const auto file = open_model_file(model.path);
  if (file.ok()) {
    const auto family = (*file)->string("general.architecture");
    if (family.ok()) known.family = *family;
    return known;
  }
  known.family = family_of_folder(model.path);
  known.problem = file.status().message();
  // Models of families that are not known have a tokenizer; heads have their target's.
  known.is_head = model.label != "GGUF" && !is_there(model.path + "/tokenizer.json") &&
                  HeadFile::open(model.path, {}).ok();
  if (known.is_head) known.problem.clear();
  return known;
}

Status list(bool as_json) {
  const HubSettings settings = hub_settings();
  const std::vector<CachedModel> models = cached_models(settings.cache);
  Json json = Json::array();
  std::string text;
  for (const CachedModel& model : models) {
    const Known known = look_at(model);
    const std::string name = printable(to_string(model.name), 400);
    json.push_back({{"name", to_string(model.name)},
                    {"path", model.path},
                    {"bytes", model.bytes},
                    {"type", model.label},
                    {"family", known.family},
                    {"draft_head", known.is_head},
                    {"readable", known.problem.empty()},
                    {"problem", known.problem}});
    const std::string family = known.family.empty() ? "?" : printable(known.family, 40);
    text +=
        fmt::format("{}\n    {}, {}, {}{}\n", name, size_text(model.bytes), family, model.label,
                    known.is_head           ? ", a draft head"
                    : known.problem.empty() ? ""
                                            : "; cannot be read: " + printable(known.problem, 300));
  }
  if (as_json) {
    print_output(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    if (models.empty()) print_message("{}: there are no models\n", settings.cache);
    print_output(text);
  }
  return {};
}

bool agreed() {
  std::string answer;
  return static_cast<bool>(std::getline(std::cin, answer)) && (answer == "y" || answer == "yes");
}

Status remove(const std::string& text, bool yes) {
  AERIE_ASSIGN_OR_RETURN(const HubName name, read_name(text, ""));
  const bool has_revision = text.find('@') != std::string::npos;
  const std::string cache = hub_settings().cache;
  AERIE_ASSIGN_OR_RETURN(Removal removal, plan_removal(cache, name, has_revision));
  if (!yes) AERIE_RETURN_IF_ERROR(lock_for_removal(cache, name).status());
  if (!yes && isatty(STDIN_FILENO) == 0) {
    return invalid_argument("{}: {} would be removed, and nobody can be asked here: give --yes",
                            to_string(name), size_text(removal.bytes));
  }
  if (!yes) {
    print_message("remove {} ({})? [y/N] ", to_string(name), size_text(removal.bytes));
    if (!agreed()) return {StatusCode::kCancelled, to_string(name) + ": nothing was removed"};
  }
  // Others may have fetched more while somebody was asked.
  AERIE_ASSIGN_OR_RETURN(const auto locks, lock_for_removal(cache, name));
  AERIE_ASSIGN_OR_RETURN(removal, plan_removal(cache, name, has_revision));
  AERIE_RETURN_IF_ERROR(remove_planned(removal));
  print_message("{}: removed, {}\n", to_string(name), size_text(removal.bytes));
  return {};
}

}  // namespace

std::function<Status()> add_pull_flags(CLI::App& app) {
  struct Flags {
    std::vector<std::string> names;
    std::string revision;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("NAME", flags->names, kNameHelp)->required();
  app.add_option("--revision", flags->revision, "A branch, a tag or a commit (default: main)");
  return [flags] { return pull(flags->names, flags->revision); };
}

std::function<Status()> add_list_flags(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "As JSON");
  return [json] { return list(*json); };
}

std::function<Status()> add_remove_flags(CLI::App& app) {
  struct Flags {
    std::string name;
    bool yes = false;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("NAME", flags->name, kNameHelp)->required();
  app.add_flag("-y,--yes", flags->yes, "Do not ask");
  return [flags] { return remove(flags->name, flags->yes); };
}

}  // namespace aerie
