#include "tools/ctl/ctl.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/standard_streams.h"
#include "format/json.h"
#include "format/text.h"
#include "measure/load/http_client.h"
#include "tools/ctl/ctl_report.h"
#include "tools/options.h"

namespace aerie {
namespace {

constexpr const char* kKeyVariable = "AERIE_ADMIN_KEY";

struct CtlFlags {
  std::string url = "http://127.0.0.1:8000";
  std::string key_file;
  std::string model;
  bool json = false;
  std::string speculate;
  std::vector<double> steps;
  Json rule = Json::object();  // numbers that were given
};

// The first word of the file's first line that is no comment, as `aerie serve` reads it.
Expected<std::string> read_key(const CtlFlags& flags) {
  if (flags.key_file.empty()) {
    const char* key = std::getenv(kKeyVariable);
    if (key != nullptr && *key != '\0') return std::string(key);
    return invalid_argument("an admin's key is wanted: --key-file FILE, or {} in the environment",
                            kKeyVariable);
  }
  std::ifstream file(flags.key_file);
  std::string line;
  while (std::getline(file, line)) {
    if (const size_t end = line.find_first_of(" \r"); end != line.npos) line.resize(end);
    if (line.empty() || line.front() == '#') continue;
    if (line.starts_with("sha256:")) {
      return invalid_argument("{}: it holds a key's hash, and the key itself is wanted",
                              flags.key_file);
    }
    return line;
  }
  return not_found("{}: there is no key in it", flags.key_file);
}

// What a server says of an order that it refuses.
Status refusal(const measure::HttpResponse& response) {
  const auto body = parse_json(response.body, "the answer");
  const Json* error =
      body.ok() && body->is_object() && body->contains("error") ? &(*body)["error"] : nullptr;
  const bool says_why = error != nullptr && error->is_object() && error->contains("message") &&
                        (*error)["message"].is_string();
  return invalid_argument("status {}: {}", response.status,
                          says_why ? printable((*error)["message"].get<std::string>())
                                   : std::string("no server of this kind answers there"));
}

void print(const Json& answer, bool json) {
  std::string text;
  if (json) {
    text = answer.dump(2) + "\n";
  } else if (answer.contains("models")) {
    for (const Json& model : answer["models"]) text += ctl_report(model);
  } else {
    text = ctl_report(answer);
  }
  print_output(text);
}

// Null: it is only asked.
Expected<int> order(const CtlFlags& flags, const std::string& path, const Json* body) {
  measure::HttpOptions options;
  AERIE_ASSIGN_OR_RETURN(options.bearer, read_key(flags));
  AERIE_ASSIGN_OR_RETURN(measure::HttpClient client, measure::HttpClient::create(options));
  std::string url = flags.url;
  while (url.ends_with('/')) url.pop_back();
  url += path;
  auto response = body == nullptr ? client.get(url) : client.post(url, body->dump());
  if (!response.ok()) return response.status();
  if (response->status != 200) return refusal(*response);
  AERIE_ASSIGN_OR_RETURN(const Json answer, parse_json(response->body, "the answer"));
  if (!answer.is_object()) return refusal(*response);
  print(answer, flags.json);
  return 0;
}

Json body_of(const CtlFlags& flags) {
  Json body = flags.rule;
  if (!flags.model.empty()) body["model"] = flags.model;
  if (!flags.speculate.empty()) body["speculate"] = flags.speculate;
  if (!flags.steps.empty()) body["steps"] = flags.steps;
  return body;
}

CLI::App* add_command(CLI::App& app, CtlFlags& flags, const char* name, const char* help) {
  CLI::App* command = app.add_subcommand(name, help);
  add_shown(*command, "--url", flags.url, "Where the server listens");
  command->add_option(
      "--key-file", flags.key_file,
      fmt::format("A file with an admin's key (default: {} in the environment)", kKeyVariable));
  command->add_flag("--json", flags.json, "The answer as the server gave it");
  return command;
}

void add_canary(CLI::App& command, CtlFlags& flags) {
  command.add_option("SETTING", flags.speculate, "As --speculate has it")->required();
  command.add_option("--model", flags.model, "Of a server of several");
  command.add_option("--steps", flags.steps, "Shares of the requests, rising (default: 0.1,0.5)")
      ->delimiter(',');
  const auto number = [&](const char* flag, const char* key, const char* help) {
    command.add_option_function<double>(
        flag, [&flags, key](double value) { flags.rule[key] = value; }, help);
  };
  const auto whole = [&](const char* flag, const char* key, const char* help) {
    command.add_option_function<int>(
        flag, [&flags, key](int value) { flags.rule[key] = value; }, help);
  };
  whole("--least-replies", "least_replies", "In a step, before times decide (default: 20)");
  whole("--most-replies", "most_replies",
        "Of both groups; what is not shown to be better by then is rolled back (default: 1000)");
  number("--least-gain", "least_gain",
         "What its speed-up must surely be above, to go on (default: 1)");
  number("--most-tail", "most_tail",
         "Times the present 99th percentile of a token's time that few may exceed (default: 1.1)");
  number("--least-accepted", "least_accepted",
         "Drafts that stood, of the tokens of its replies (default: 0.05)");
}

}  // namespace

std::function<Expected<int>()> add_ctl_flags(CLI::App& app) {
  const auto flags = std::make_shared<CtlFlags>();
  app.require_subcommand(1);
  struct Command {
    const CLI::App* app;
    std::string path;
    bool asks = false;
  };
  auto commands = std::make_shared<std::vector<Command>>();
  commands->push_back({add_command(app, *flags, "status", "What is loaded, on trial, and gained"),
                       "/admin/status", true});
  const auto add = [&](const char* name, const char* path, const char* help) {
    CLI::App* command = add_command(app, *flags, name, help);
    commands->push_back({command, path});
    return command;
  };
  add("load", "/admin/models/load", "Load a model")
      ->add_option("MODEL", flags->model, "Its name")
      ->required();
  add("unload", "/admin/models/unload", "Unload a model, once it has answered what it took")
      ->add_option("MODEL", flags->model, "Its name")
      ->required();
  add_canary(*add("canary", "/admin/canary", "Try a setting of speculation, by steps"), *flags);
  add("promote", "/admin/canary/promote", "Give all requests what is on trial")
      ->add_option("--model", flags->model, "Of a server of several");
  CLI::App* shadow =
      add("shadow", "/admin/shadow", "Have a setting draft on paper, to see what it would bring");
  shadow->add_option("SETTING", flags->speculate, "As --speculate has it")->required();
  shadow->add_option("--model", flags->model, "Of a server of several");
  shadow->add_option_function<double>(
      "--share", [flags](double share) { flags->rule["share"] = share; },
      "Of the requests (default: 0.05)");
  add("shadow-end", "/admin/shadow/end", "End that")
      ->add_option("--model", flags->model, "Of a server of several");
  add("rollback", "/admin/canary/rollback", "End a trial, or take the last promotion back")
      ->add_option("--model", flags->model, "Of a server of several");
  return [flags, commands]() -> Expected<int> {
    for (const Command& command : *commands) {
      if (!command.app->parsed()) continue;
      const Json body = body_of(*flags);
      return order(*flags, command.path, command.asks ? nullptr : &body);
    }
    return internal_error("no subcommand was given");
  };
}

}  // namespace aerie
