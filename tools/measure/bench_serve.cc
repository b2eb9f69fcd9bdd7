#include "tools/measure/bench_serve.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/standard_streams.h"
#include "format/json.h"
#include "measure/load/serve_report.h"
#include "report/text_file.h"
#include "tools/options.h"
#include "tools/report_file.h"

namespace aerie {
namespace {

struct Flags {
  measure::ServeOptions options;
  std::string endpoint = "chat", extra_body, api_key_file, json, html;
  std::vector<std::string> compare, methods;
  std::vector<int> depths = {3, 5, 7};
  bool sweep = false;
  CLI::Option *rounds = nullptr, *to = nullptr, *max_tokens = nullptr, *concurrency = nullptr;
  // vLLM's.
  std::string dataset_name, host = "127.0.0.1";
  int port = 8000, input_length = 0;
  std::string backend = "openai", label, result_folder, result_file;
  bool save = false, append = false;

  bool saves() const { return save || append || !result_file.empty(); }
};

// "off,ngram@5"; what holds settings of its own ("ngram:a=1,b=2") stands alone.
std::vector<std::string> split(const std::vector<std::string>& lists) {
  std::vector<std::string> names;
  for (const std::string& list : lists) {
    if (list.find(':') != std::string::npos) {
      names.push_back(list);
      continue;
    }
    for (size_t from = 0; from <= list.size();) {
      const size_t to = std::min(list.find(',', from), list.size());
      names.push_back(list.substr(from, to - from));
      from = to + 1;
    }
  }
  return names;
}

Status choose_settings(Flags& flags) {
  measure::ServeOptions& o = flags.options;
  if (flags.sweep) {
    std::vector<std::string> methods = split(flags.methods);
    if (methods.empty()) {
      AERIE_ASSIGN_OR_RETURN(methods, measure::offered_methods(o.target));
    }
    AERIE_ASSIGN_OR_RETURN(o.settings, measure::sweep_settings(methods, flags.depths));
    o.sweep = true;
  } else if (!flags.compare.empty()) {
    o.settings.clear();
    for (const std::string& name : split(flags.compare)) {
      AERIE_ASSIGN_OR_RETURN(measure::ServeSetting setting, measure::parse_serve_setting(name));
      o.settings.push_back(std::move(setting));
    }
    if (flags.rounds->count() == 0) o.rounds = 5;
  }
  return {};
}

// "http://127.0.0.1:8000/v1"
std::string url_of(const std::string& host, int port) {
  const bool bare_v6 = host.find(':') != std::string::npos && !host.starts_with('[');
  return fmt::format("http://{}:{}/v1", bare_v6 ? fmt::format("[{}]", host) : host, port);
}

// What vLLM's --dataset-name says beside the files.
Status choose_set(Flags& flags) {
  measure::ServeOptions& o = flags.options;
  using Made = measure::ServeOptions::Made;
  if (flags.dataset_name == "random") o.made = Made::kRandom;
  if (flags.dataset_name == "sonnet") o.made = Made::kSonnet;
  if (o.made == Made::kNone) {
    if (!o.datasets.empty()) return {};
    return invalid_argument(
        "there are no prompts: give --dataset FILE, or --dataset-name random to make some");
  }
  const bool random = o.made == Made::kRandom;
  if (random && !o.datasets.empty()) {
    return invalid_argument("--dataset-name random makes its prompts: leave --dataset out");
  }
  // As vLLM has it: texts to go on with, and replies of the length that was asked for.
  if (random && flags.to->count() == 0 && !flags.backend.ends_with("-chat")) {
    flags.endpoint = "completions";
  }
  if (random) o.target.ignore_eos = true;
  if (flags.input_length > 0) o.random.input = o.sonnet.input = flags.input_length;
  if (flags.max_tokens->count() > 0) o.random.output = o.sonnet.output = o.target.max_tokens;
  return {};
}

Status finish(Flags& flags) {
  measure::ServeTarget& target = flags.options.target;
  AERIE_RETURN_IF_ERROR(choose_set(flags));
  if (target.url.empty()) target.url = url_of(flags.host, flags.port);
  while (target.url.ends_with('/')) target.url.pop_back();
  target.chat = flags.endpoint == "chat";
  target.cancel = &interrupted;
  if (!flags.api_key_file.empty()) {
    AERIE_ASSIGN_OR_RETURN(target.api_key, read_key_file(flags.api_key_file, "--api-key-file"));
  }
  if (!flags.extra_body.empty()) {
    auto extra = parse_json(flags.extra_body, "--extra-body");
    if (!extra.ok()) return invalid_argument(extra.status().message());
    target.extra = std::move(*extra);
  }
  flags.options.note = [](const std::string& text) { print_message("{}\n", text); };
  return choose_settings(flags);
}

// As Python writes it: "4.0", "0.5", "inf".
std::string rate_text(double rate) {
  std::string text = fmt::format("{}", rate);
  if (text.find_first_not_of("0123456789") == std::string::npos) text += ".0";
  return text;
}

// vLLM's name of a result: "openai-4.0qps-concurrency8-model-20250131-235959.json".
std::string result_name(const Flags& flags, const measure::ServeReport& report) {
  const std::string clients =
      flags.concurrency->count() == 0
          ? ""
          : fmt::format("-concurrency{}", fmt::join(flags.options.concurrency, ","));
  const std::string model = report.model.substr(report.model.rfind('/') + 1);
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  localtime_r(&now, &parts);
  return fmt::format("{}-{}qps{}-{}-{:%Y%m%d-%H%M%S}.json",
                     flags.label.empty() ? flags.backend : flags.label,
                     rate_text(flags.options.rate), clients, model, parts);
}

// The folder of results, which is made; whether a file can be written there is seen before the
// work.
Status prepare_result(const Flags& flags) {
  if (!flags.saves()) return {};
  const std::filesystem::path path = std::filesystem::path(flags.result_folder) /
                                     (flags.result_file.empty() ? "x" : flags.result_file);
  std::error_code error;
  if (!flags.result_folder.empty()) {
    std::filesystem::create_directories(flags.result_folder, error);
    if (error) return system_error(flags.result_folder, "cannot make this folder", error.value());
  }
  return ReportFile::open(path.string(), "--result-filename").status();
}

Status write_result(const Flags& flags, const measure::ServeReport& report) {
  if (!flags.saves()) return {};
  const std::string name =
      flags.result_file.empty() ? result_name(flags, report) : flags.result_file;
  const std::string path = (std::filesystem::path(flags.result_folder) / name).string();
  std::string text = to_json(report);
  if (flags.append && is_there(path)) {
    AERIE_ASSIGN_OR_RETURN(const std::string before, read_text_file(path, "--append-result"));
    text.insert(0, before);
  }
  AERIE_ASSIGN_OR_RETURN(ReportFile file, ReportFile::open(path, "--result-filename"));
  AERIE_RETURN_IF_ERROR(file.write(text));
  print_message("{}: written\n", path);
  return {};
}

Status run(Flags& flags) {
  AERIE_RETURN_IF_ERROR(finish(flags));
  AERIE_RETURN_IF_ERROR(prepare_result(flags));
  AERIE_ASSIGN_OR_RETURN(ReportFile json, ReportFile::open(flags.json));
  AERIE_ASSIGN_OR_RETURN(ReportFile html, ReportFile::open(flags.html, "--html"));
  catch_interrupts();
  AERIE_ASSIGN_OR_RETURN(const auto report, measure::bench_serve(flags.options));
  json.print_beside(to_text(report));
  AERIE_RETURN_IF_ERROR(json.write(to_json(report)));
  AERIE_RETURN_IF_ERROR(write_result(flags, report));
  AERIE_RETURN_IF_ERROR(html.write(to_html(report)));
  if (!report.interrupted) return {};
  return {StatusCode::kCancelled, "interrupted; the figures are those of the requests until then"};
}

void add_load_flags(CLI::App& app, Flags& flags) {
  measure::ServeOptions& o = flags.options;
  flags.concurrency =
      add_list(app, "--concurrency", o.concurrency, "Requests at a time at most: 1,4,16");
  add_shown(app, "--rate", o.rate,
            "Requests in a second, arriving as a Poisson process; inf: at once, as many as "
            "--concurrency allows");
  add_shown(app, "--num-prompts", o.num_prompts,
            "Requests of a run, the prompts over again if they are fewer; 0: each once, or 1000 "
            "that are made");
  add_shown(app, "--limit", o.selection.limit, "Only the first so many prompts of a file; 0: all");
  add_shown(app, "--sample", o.selection.sample, "Of those so many of each task, evenly spread");
}

void add_request_flags(CLI::App& app, Flags& flags) {
  measure::ServeTarget& t = flags.options.target;
  flags.to = add_shown(app, "--endpoint", flags.endpoint,
                       "chat or completions; of --dataset-name random: completions");
  flags.to->check(CLI::IsMember({"chat", "completions"}));
  app.add_option("--model", t.model, "The model's name there (default: the server's first)");
  flags.max_tokens = add_shown(app, "--max-tokens", t.max_tokens, "Tokens of a reply at most");
  add_shown(app, "--temperature", t.temperature);
  add_shown(app, "--seed", t.seed, "Of random choices; prompts add their number");
  app.add_flag("--ignore-eos", t.ignore_eos, "Go on to --max-tokens, where the server can");
  app.add_option("--extra-body", flags.extra_body, "A JSON object with more keys for each request");
  CLI::Option* key = app.add_option("--api-key", t.api_key, "The server's API key");
  app.add_option("--api-key-file", flags.api_key_file, "A file that holds it")->excludes(key);
  add_shown(app, "--timeout", t.timeout, "Seconds to wait for a reply")
      ->check(CLI::Range(0.001, 86400.0));
}

// Of prompts that are made: vLLM's names and defaults.
void add_made_flags(CLI::App& app, Flags& flags) {
  const FlagGroup group(app, "Prompts that are made");
  measure::RandomPrompts& random = flags.options.random;
  measure::SonnetPrompts& sonnet = flags.options.sonnet;
  app.add_option("--dataset-name", flags.dataset_name,
                 "random: words drawn to a length; sonnet: lines of the poem in --dataset; others "
                 "are files as --dataset reads them")
      ->check(CLI::IsMember({"random", "sonnet", "hf", "sharegpt", "custom", "spec_bench"}));
  add_shown(app, "--random-input-len", random.input, "Tokens of a prompt");
  add_shown(app, "--random-output-len", random.output, "Tokens of a reply");
  add_shown(app, "--random-range-ratio", random.range,
            "Both are drawn from so much less to so much more: 0.2 is a fifth");
  add_shown(app, "--random-prefix-len", random.prefix, "More tokens, the same before each prompt");
  add_shown(app, "--sonnet-input-len", sonnet.input, "Tokens of a prompt at most");
  add_shown(app, "--sonnet-output-len", sonnet.output, "Tokens of a reply at most");
  add_shown(app, "--sonnet-prefix-len", sonnet.prefix, "Of a prompt, in lines that all have");
  app.add_option("--input-len", flags.input_length, "The input length of both")
      ->check(CLI::Range(1, 1 << 24));
}

void add_their_flags(CLI::App& app, Flags& flags) {
  const FlagGroup group(app, "As vLLM has it");
  add_shown(app, "--host", flags.host, "The server's, where --url is not given");
  add_shown(app, "--port", flags.port, "The server's")->check(CLI::Range(1, 65535));
  app.add_flag("--save-result", flags.save,
               "Write the figures to BACKEND-RATEqps-concurrencyN-MODEL-DATE-TIME.json");
  app.add_option("--result-dir", flags.result_folder, "The folder for it, which is made");
  app.add_option("--result-filename", flags.result_file, "Another name for it");
  app.add_flag("--append-result", flags.append, "Add the figures to that file");
  add_shown(app, "--backend", flags.backend, "Of servers of OpenAI's API; a part of that name")
      ->check(CLI::IsMember(
          {"openai", "openai-chat", "vllm", "sglang", "sglang-oai", "sglang-oai-chat"}));
  app.add_option("--label", flags.label, "In that name in place of it");
}

}  // namespace

std::function<Status()> add_bench_serve(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  measure::ServeOptions& o = flags->options;
  app.add_option("--url", o.target.url,
                 "The server (default: of --host and --port, http://127.0.0.1:8000/v1)");
  app.add_option("--dataset", o.datasets,
                 "Files of prompts, JSON lines with 'turns', 'prompt', 'question', 'text' or "
                 "'messages'; or "
                 "ORG/REPO of a dataset on the hub");
  add_load_flags(app, *flags);
  add_request_flags(app, *flags);
  CLI::Option* compare =
      app.add_option("--compare", flags->compare,
                     "Speculation settings to take in turn and compare with the first: off, auto, "
                     "a method of the server, METHOD@DEPTH")
          ->allow_extra_args(false);
  CLI::Option* sweep =
      app.add_flag("--sweep", flags->sweep, "Every method at every depth against plain decoding")
          ->excludes(compare);
  app.add_option("--methods", flags->methods, "With it: methods (default: those of the server)")
      ->allow_extra_args(false)
      ->needs(sweep);
  add_list(app, "--depths", flags->depths, "With it: the most tokens of a draft in depth")
      ->needs(sweep);
  flags->rounds = app.add_option("--rounds", o.rounds,
                                 "Rounds of all settings (default: 5 with --compare, else 1)");
  app.add_option("--json", flags->json, "Write the figures to this file; -: standard output");
  app.add_option("--html", flags->html, "Write a page with plots to this file");
  add_made_flags(app, *flags);
  add_their_flags(app, *flags);
  return [flags] { return run(*flags); };
}

}  // namespace aerie
