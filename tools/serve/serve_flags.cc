#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/errors.h"
#include "chat/dialect.h"
#include "format/json.h"
#include "tools/flags.h"
#include "tools/options.h"
#include "tools/serve/model_set.h"
#include "tools/serve/serve.h"

namespace aerie {
namespace {

struct ServeFlags {
  ServeOptions options;
  std::vector<std::string> words;  // models, if -m is left out
  std::vector<std::string> models;
  EngineFlags engine;
  std::vector<std::string> offers;
  std::vector<std::string> proxies;
  std::string client_limits;
  std::vector<std::string> admin_key_files;
  std::string config;
  std::string generation_config = "auto";
  std::string sampling;
  double max_body_mib = 0;
  double max_unsent_mib = 0;
  int max_grammar_mib = 0;
  bool no_log = false;
  bool no_prefix_cache = false;
  std::optional<bool> allow_trace;
  CLI::App* app = nullptr;
};

void add_network_flags(CLI::App& app, ServeFlags& flags) {
  server::HttpServerOptions& http = flags.options.server.http;
  const FlagGroup group(app, "Network");
  add_shown(app, "--host", http.host, "The address to listen on; 0.0.0.0: all of IPv4, ::: all");
  add_shown(app, "--port", http.port, "0: any that is free, which is printed")
      ->check(CLI::Range(0, 65535));
  app.add_option("--tls-cert", http.tls_certificate, "A PEM file with the certificate's chain");
  app.add_option("--tls-key", http.tls_key, "A PEM file with its key");
  app.add_option("--trust-proxy", flags.proxies,
                 "A proxy's address or network, such as 10.0.0.0/8: who asks is whom its "
                 "X-Forwarded-For names; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--cors-origin", flags.options.server.gate.cors_origins,
                 "A site whose pages may ask, such as https://chat.example; *: any; may be "
                 "repeated (default: none)")
      ->allow_extra_args(false);
  app.add_option("--api-key-file", flags.options.keys.files,
                 "A file with API keys or their hashes, one a line, with a name and limits "
                 "(rpm=60 tpm=20000 concurrent=4); read again where it changes; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--api-key", flags.options.keys.keys,
                 "An API key; other users of the machine see it, so prefer a file")
      ->allow_extra_args(false);
  app.add_option("--admin-key-file", flags.admin_key_files,
                 "A file with keys for /admin and `aerie ctl`, in the same form; without one "
                 "nobody may give orders; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--hash-key", flags.options.hash_key,
               "Read a key from standard input, print what a key file may hold in its place, and "
               "end");
}

void add_tenant_flags(CLI::App& app, ServeFlags& flags) {
  using server::TenantBy;
  server::ApiOptions& api = flags.options.server.api;
  const FlagGroup group(app, "Tenants");
  const std::map<std::string, TenantBy> kinds = {
      {"key", TenantBy::kKey}, {"header", TenantBy::kHeader}, {"none", TenantBy::kNone}};
  app.add_option_function<std::string>(
         "--tenant-by", [&api, kinds](const std::string& by) { api.tenant_by = kinds.at(by); },
         "What tells tenants apart, of whose texts nothing is kept for others: key, the API key, "
         "or "
         "the address where there are none; header, X-Aerie-Tenant, set by a proxy; none: all are "
         "one")
      ->default_str("key")
      ->check(CLI::IsMember({"key", "header", "none"}));
  app.add_flag("--share-learning", api.share_learning,
               "What is learnt and kept of one tenant's texts serves all, and shows");
  app.add_flag_callback(
      "--allow-trace", [&flags] { flags.allow_trace = true; },
      "Requests may ask for what was drafted (default: where only this machine can ask, and needs "
      "no key)");
  app.add_flag_callback(
      "--no-allow-trace", [&flags] { flags.allow_trace = false; }, "No request may, wherever");
}

void add_limit_flags(CLI::App& app, ServeFlags& flags) {
  server::HttpServerOptions& http = flags.options.server.http;
  server::ApiOptions& api = flags.options.server.api;
  ServiceOptions& service = flags.options.service;
  const FlagGroup group(app, "Limits");
  flags.max_body_mib = static_cast<double>(http.max_body_bytes) / (1 << 20);
  flags.max_unsent_mib = static_cast<double>(http.max_unsent_bytes) / (1 << 20);
  const auto number = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str();
  };
  number("--max-num-seqs", service.max_sequences, "Requests decoded together")
      ->check(CLI::Range(1, 4096));
  number("--max-num-batched-tokens", service.max_pass_tokens,
         "Rows of a pass; 0: by what passes cost, at most 512")
      ->check(CLI::Range(0, 1 << 16));
  number("--max-waiting", service.max_waiting, "Requests that wait; more are refused")
      ->check(CLI::Range(0, 1 << 20));
  number("--cache-tokens", service.cache_positions,
         "Positions of the cache for all requests (0: what fits half of the free memory)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  number("--max-grammar-mib", flags.max_grammar_mib,
         "States and masks of all grammars (0: a sixteenth of the free memory, 64 to 256)")
      ->check(CLI::Range(0, 1 << 20));
  number("--grammar-threads", service.grammar_threads,
         "That prepare grammars, beside those that decode")
      ->check(CLI::Range(1, 64));
  app.add_option("--client-limits", flags.client_limits,
                 "What each address may have where there are no keys, as in a file of keys: "
                 "rpm=60,tpm=20000,concurrent=4");
  number("--max-prompt-tokens", api.max_prompt_tokens, "0: the context")
      ->check(CLI::Range(0, 1 << 26));
  number("--max-choices", api.max_choices, "Replies to one request")->check(CLI::Range(1, 4096));
  number("--max-seconds", api.max_seconds, "For a request; 0: no limit")
      ->check(CLI::Range(0.0, 1e9));
  number("--max-connections", http.max_connections, "At once")->check(CLI::Range(1, 1 << 20));
  number("--max-body-mib", flags.max_body_mib, "Of a request's body")
      ->check(CLI::Range(0.001, 1024.0));
  number("--max-unsent-mib", flags.max_unsent_mib,
         "Of a stream whose client does not read; then it is cancelled")
      ->check(CLI::Range(0.001, 1024.0));
  number("--read-seconds", http.read_seconds, "For a request to arrive")
      ->check(CLI::Range(0.01, 1e6));
  number("--idle-seconds", http.idle_seconds, "Between requests of a connection")
      ->check(CLI::Range(0.01, 1e6));
  number("--write-seconds", http.write_seconds, "Without the client taking a byte")
      ->check(CLI::Range(0.01, 1e6));
  number("--drain-seconds", flags.options.drain_seconds,
         "For what was begun when a signal ends the server")
      ->check(CLI::Range(0.0, 1e6));
}

void add_recording_flags(CLI::App& app, ServeFlags& flags) {
  ServeOptions& options = flags.options;
  const FlagGroup group(app, "Recording");
  app.add_option("--record", options.record_folder,
                 "Record a share of the requests in this folder, for `aerie audit`");
  add_shown(app, "--record-share", options.recording.share,
            "Of the requests: 0.01 is one in a hundred")
      ->check(CLI::Range(0.0, 1.0));
  add_shown(app, "--record-mib", options.record_mib,
            "Of all records in the folder; the oldest are deleted")
      ->check(CLI::Range(1, 1 << 20));
  app.add_flag("--record-texts", options.recording.texts,
               "Prompts, replies and grammars as texts, too, not as token ids alone");
}

void add_learning_flags(CLI::App& app, ServeOptions& options) {
  const FlagGroup group(app, "Learning");
  app.add_option("--learn", options.learn_folder,
                 "Keep what requests ask and get, and what the model's layers hold then, in this "
                 "folder, for `aerie train --data` to learn from");
  add_shown(app, "--learn-mib", options.learn_mib,
            "Of all that is kept there; the oldest goes first")
      ->check(CLI::Range(8, 1 << 24));
}

void add_holdback(CLI::App& app, server::ApiOptions& api) {
  add_shown(app, "--holdback", api.holdback,
            "The share of requests that are answered plainly, so that /metrics says what "
            "speculation gains; 0.02 is one in fifty")
      ->check(CLI::Range(0.0, 1.0))
      ->group("Speculation");
  app.add_flag(
         "--holdback-gate", api.holdback_gates,
         "Where --holdback shows for certain that a setting is slower than none, its requests "
         "are answered plainly but for that share, until it shows that no more")
      ->group("Speculation");
}

void add_model_set(CLI::App& app, ModelSetOptions& set) {
  const FlagGroup group(app, "Several models");
  app.add_option("--models", set.list,
                 "A JSON file with what is served under which name: {NAME: {\"model\": MODEL, "
                 "FLAG: VALUE, ...}, ...}");
  app.add_option("--models-dir", set.folder,
                 "A folder whose GGUF files and models' folders are served under their names");
  add_shown(app, "--models-max", set.max_loaded,
            "In memory at a time; the one that was used longest ago goes; 0: as many as fit")
      ->check(CLI::Range(0, kMostModels));
  add_shown(app, "--models-memory-mib", set.memory_mib, "Of all in memory; 0: what is free")
      ->check(CLI::Range(0.0, 1e9));
}

void add_form(CLI::App& app, const char* flag, std::string& name,
              Status (*choose)(std::string_view, chat::Dialect&), const char* help) {
  const auto check = [choose](const std::string& given) {
    chat::Dialect dialect;
    return choose(given, dialect).message();
  };
  add_shown(app, flag, name, help)->check(CLI::Validator(check, "NAME"));
}

void add_serving_flags(CLI::App& app, ServeFlags& flags) {
  server::ApiOptions& api = flags.options.server.api;
  app.add_option("MODEL", flags.words, "The model (or -m); several: each is loaded when asked for")
      ->expected(0, kMostModels);
  app.add_option("-m,--model", flags.models, fmt::format("{}; may be repeated", kModelHelp))
      ->allow_extra_args(false);
  app.add_option("--served-model-name", api.model_names,
                 "What requests call the model; several: the first is shown (default: the file's "
                 "name)")
      ->allow_extra_args(false);
  add_shown(app, "--stream-interval", api.stream_interval, "Rounds that share a chunk of a stream")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--config", flags.config,
                 "A TOML or INI file with flags, as in max-num-seqs = 32; the command line goes "
                 "before it");
  app.add_option_function<std::string>(
         "--scheduling-policy",
         [&api](const std::string& policy) { api.priorities = policy == "priority"; },
         "Who comes first: fcfs, or priority, by which requests may say so themselves")
      ->default_str("fcfs")
      ->check(CLI::IsMember({"fcfs", "priority"}));
  add_generation_config(app, flags.generation_config);
  app.add_option(
      "--override-generation-config", flags.sampling,
      "A JSON object with the sampling of requests that say nothing: temperature, top_k, "
      "top_p, min_p, repetition_penalty");
  app.add_flag("--strict-schemas", api.strict_schemas, kStrictSchemasHelp);
  add_model_set(app, flags.options.set);
  add_holdback(app, api);
  add_form(app, "--tool-call-parser", api.tool_call_parser, chat::choose_calls,
           "How the model writes calls of tools, in the place of what its chat template shows");
  add_form(app, "--reasoning-parser", api.reasoning_parser, chat::choose_reasoning,
           "How it marks what it thinks before it answers, likewise");
  app.add_option_function<std::string>(
         "--pooling",
         [&api](const std::string& pooling) {
           if (pooling == "auto") api.pooling.reset();
           if (pooling == "last") api.pooling = Pooling::kLast;
           if (pooling == "mean") api.pooling = Pooling::kMean;
         },
         "What a vector of /v1/embeddings is: the last token's state, the mean of all; auto: as "
         "the "
         "model's files say, else last")
      ->default_str("auto")
      ->check(CLI::IsMember({"auto", "last", "mean"}));
  app.add_flag("--no-log-requests", flags.no_log, "No line of the log for each request");
  app.add_option(
      "--audit-log", flags.options.audit_log,
      "A file that gets a line for each request: who, when, what route, how many tokens; "
      "no texts; opened anew after SIGHUP");
  app.add_flag("--no-prefix-cache", flags.no_prefix_cache,
               "Do not keep what prompts have in common");
  app.add_option(
         "--offer", flags.offers,
         fmt::format("Another setting of speculation that requests may pick, as --speculate "
                     "has it; may be repeated (default: {})",
                     fmt::join(offered_methods(), ", ")))
      ->group("Speculation")
      ->allow_extra_args(false);
}

// What the file says and the command line does not.
Status read_config(CLI::App& app, const std::string& path) {
  const auto wrong = [&](const std::string& why) {
    return invalid_argument("--config {}: {}", path, why);
  };
  std::ifstream file(path);
  if (!file) return wrong("the file cannot be read");
  // The library reports by exceptions, as it does on the command line.
  try {
    const std::vector<CLI::ConfigItem> items = CLI::ConfigTOML().from_config(file);
    if (file.bad()) return wrong("the file cannot be read");  // a folder can be opened
    for (const CLI::ConfigItem& item : items) {
      const bool is_top =
          item.parents.empty() || (item.parents.size() == 1 && item.parents.front() == "serve");
      if (item.name == "++" || item.name == "--") continue;  // a section's borders
      CLI::Option* option = is_top ? app.get_option_no_throw("--" + item.name) : nullptr;
      if (option == nullptr || item.name == "config") {
        return wrong(fmt::format("there is no flag {}", item.fullname()));
      }
      if (option->count() > 0) continue;
      if (option->get_expected_max() == 0) {
        option->add_result(app.get_config_formatter()->to_flag(item));
      } else {
        option->add_result(item.inputs);
      }
      option->run_callback();
    }
  } catch (const CLI::Error& error) {
    return wrong(error.what());
  }
  return {};
}

// --override-generation-config
Status read_sampling(const std::string& text, SuggestedSampling& out) {
  if (text.empty()) return {};
  const std::string flag = "--override-generation-config";
  auto parsed = parse_json(text, flag);
  if (!parsed.ok()) return invalid_argument(parsed.status().message());
  const Json& json = *parsed;
  if (!json.is_object()) return invalid_argument("{}: give a JSON object", flag);
  for (const auto& [key, value] : json.items()) {
    const auto number = [&, name = key](double least, double most, auto& to) -> Status {
      const double given = value.is_number() ? value.get<double>() : -1e300;
      if (!(given >= least && given <= most)) {
        return invalid_argument("{}: '{}' must be a number from {} to {}", flag, name, least, most);
      }
      to = static_cast<typename std::decay_t<decltype(to)>::value_type>(given);
      return {};
    };
    if (key == "temperature") {
      AERIE_RETURN_IF_ERROR(number(0, 100, out.temperature));
    } else if (key == "top_k" && value == -1) {
      out.top_k = 0;  // vLLM's word for all
    } else if (key == "top_k") {
      AERIE_RETURN_IF_ERROR(number(0, 1 << 30, out.top_k));
    } else if (key == "top_p") {
      AERIE_RETURN_IF_ERROR(number(0, 1, out.top_p));
    } else if (key == "min_p") {
      AERIE_RETURN_IF_ERROR(number(0, 1, out.min_p));
    } else if (key == "repetition_penalty") {
      AERIE_RETURN_IF_ERROR(number(0.01, 100, out.repetition_penalty));
    } else {
      return invalid_argument(
          "{}: there is no '{}': give temperature, top_k, top_p, min_p or repetition_penalty", flag,
          key);
    }
  }
  return {};
}

Status read_offers(const ServeFlags& flags, EngineOptions& engine) {
  if (flags.offers.empty()) engine.more_speculations = offered_speculations(engine.speculation);
  for (const std::string& offer : flags.offers) {
    auto config = parse_speculative_spec(offer);
    if (!config.ok()) return config.status().with_context("--offer");
    engine.more_speculations.push_back(std::move(*config));
  }
  return {};
}

// Of several models.
Status check_model_set(const ServeOptions& options) {
  if (options.models.empty()) return {};
  if (options.engine.tensor_parallel > 1) {
    return invalid_argument("--tensor-parallel is for a server of one model");
  }
  if (!options.record_folder.empty()) {
    return invalid_argument("--record is for a server of one model");
  }
  if (!options.learn_folder.empty()) {
    return invalid_argument("--learn is for a server of one model");
  }
  if (!options.server.api.model_names.empty()) {
    return invalid_argument(
        "--served-model-name is for a server of one model: name several in the file of --models");
  }
  return {};
}

// Here, since the file may say one and the command line another.
Status check_recording(const ServeFlags& flags) {
  if (!flags.options.record_folder.empty()) return {};
  for (const char* flag : {"--record-share", "--record-mib", "--record-texts"}) {
    if (flags.app->get_option(flag)->count() > 0) {
      return invalid_argument("{} says what --record keeps: give --record DIR too", flag);
    }
  }
  return {};
}

Status check_learning(const ServeFlags& flags) {
  if (!flags.options.learn_folder.empty()) return {};
  if (flags.app->get_option("--learn-mib")->count() == 0) return {};
  return invalid_argument("--learn-mib says how much --learn keeps: give --learn DIR too");
}

Status read_clients(const ServeFlags& flags, server::ServerOptions& out) {
  for (const std::string& proxy : flags.proxies) {
    AERIE_RETURN_IF_ERROR(out.http.proxies.add(proxy).with_context("--trust-proxy"));
  }
  AERIE_ASSIGN_OR_RETURN(out.gate.client_limits,
                         in_context(server::read_limits(flags.client_limits), "--client-limits"));
  return {};
}

// Whether nobody can ask but who is on this machine, and they are not told apart.
bool is_lone_user(const server::ServerOptions& options) {
  const std::string& host = options.http.host;
  const bool is_loopback = host == "localhost" || host == "::1" || host.starts_with("127.");
  return is_loopback && options.gate.keys.empty() && options.http.proxies.empty() &&
         options.api.tenant_by != server::TenantBy::kHeader;
}

Expected<ServeOptions> finish(ServeFlags& flags) {
  if (flags.options.hash_key) return flags.options;
  if (!flags.config.empty()) AERIE_RETURN_IF_ERROR(read_config(*flags.app, flags.config));
  ServeOptions& options = flags.options;
  flags.models.insert(flags.models.begin(), flags.words.begin(), flags.words.end());
  AERIE_ASSIGN_OR_RETURN(options.models, read_model_set(*flags.app, flags.models, options.set));
  if (!flags.models.empty()) options.engine.model = flags.models.front();
  if (options.models.empty() && options.engine.model.empty()) {
    return invalid_argument("there is no model: give a file, a folder or a name");
  }
  AERIE_RETURN_IF_ERROR(read_engine_flags(*flags.app, flags.engine, options.engine));
  AERIE_RETURN_IF_ERROR(read_offers(flags, options.engine));
  AERIE_RETURN_IF_ERROR(check_recording(flags));
  AERIE_RETURN_IF_ERROR(check_learning(flags));
  AERIE_RETURN_IF_ERROR(check_model_set(options));
  for (const std::string& origin : options.server.gate.cors_origins) {
    AERIE_RETURN_IF_ERROR(server::check_origin(origin).with_context("--cors-origin"));
  }
  AERIE_RETURN_IF_ERROR(read_clients(flags, options.server));
  AERIE_RETURN_IF_ERROR(read_sampling(flags.sampling, options.sampling));
  AERIE_ASSIGN_OR_RETURN(options.server.gate.keys, options.keys.read());
  for (const std::string& file : flags.admin_key_files) {
    AERIE_RETURN_IF_ERROR(
        options.server.gate.admin_keys.add_file(file).with_context("--admin-key-file"));
  }
  options.server.http.max_body_bytes = static_cast<size_t>(flags.max_body_mib * (1 << 20));
  options.server.http.max_unsent_bytes = static_cast<size_t>(flags.max_unsent_mib * (1 << 20));
  options.server.api.allow_trace = flags.allow_trace.value_or(is_lone_user(options.server));
  options.service.grammar_bytes = int64_t{flags.max_grammar_mib} << 20;
  options.service.prefix_cache = !flags.no_prefix_cache;
  options.log_requests = !flags.no_log;
  options.use_suggested = flags.generation_config == "auto";
  if (std::optional<ProfileUse>& use = options.engine.profile_use) {
    use = {options.sampling.temperature, options.use_suggested, SamplingParams().temperature};
  }
  return options;
}

}  // namespace

std::function<Expected<ServeOptions>()> add_serve_options(CLI::App& app) {
  auto flags = std::make_shared<ServeFlags>();
  flags->app = &app;
  flags->options.server.http.port = 8000;
  add_serving_flags(app, *flags);
  add_network_flags(app, *flags);
  add_tenant_flags(app, *flags);
  add_limit_flags(app, *flags);
  add_recording_flags(app, *flags);
  add_learning_flags(app, flags->options);
  add_speculation_flags(app, flags->engine, flags->options.engine);
  flags->options.engine.default_context = 0;
  add_engine_flags(app, flags->engine, flags->options.engine, "--max-model-len,--ctx");
  return [flags] { return finish(*flags); };
}

std::function<Expected<int>()> add_serve_flags(CLI::App& app) {
  return [read = add_serve_options(app)]() -> Expected<int> {
    AERIE_ASSIGN_OR_RETURN(ServeOptions options, read());
    return serve(std::move(options));
  };
}

}  // namespace aerie
